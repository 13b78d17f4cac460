// SPDX-License-Identifier: Apache-2.0
// Appends rows (id, name) by Fluss's own Java client, which puts statistics into its batches where the table asks for them.
// Arguments: bootstrap server, database, table, first id, id after the last.

import org.apache.fluss.client.Connection;
import org.apache.fluss.client.ConnectionFactory;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.writer.AppendWriter;
import org.apache.fluss.config.Configuration;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;

public class AppendEvents {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("bootstrap.servers", arguments[0]);
        try (Connection connection = ConnectionFactory.createConnection(settings);
                Table table = connection.getTable(TablePath.of(arguments[1], arguments[2]))) {
            AppendWriter writer = table.newAppend().createWriter();
            for (long id = Long.parseLong(arguments[3]); id < Long.parseLong(arguments[4]); id++) {
                writer.append(GenericRow.of(id, BinaryString.fromString("event " + id)));
            }
            writer.flush();
        }
    }
}
