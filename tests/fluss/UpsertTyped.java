// SPDX-License-Identifier: Apache-2.0
// Upserts into a table of every flat type by Fluss's own Java client, which pyfluss cannot do for INDEXED rows.
// Arguments: bootstrap server, database, table, number of rows. Rows are numbered from 1; the last one is null but for its id.

import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import org.apache.fluss.client.Connection;
import org.apache.fluss.client.ConnectionFactory;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.config.Configuration;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.Decimal;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.row.TimestampLtz;
import org.apache.fluss.row.TimestampNtz;

public class UpsertTyped {
    private static final int COLUMNS = 16;

    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("bootstrap.servers", arguments[0]);
        int count = Integer.parseInt(arguments[3]);
        try (Connection connection = ConnectionFactory.createConnection(settings);
                Table table = connection.getTable(TablePath.of(arguments[1], arguments[2]))) {
            UpsertWriter writer = table.newUpsert().createWriter();
            for (int number = 1; number < count; number++) {
                writer.upsert(typed(number));
            }
            GenericRow empty = new GenericRow(COLUMNS);
            empty.setField(0, (long) count);
            writer.upsert(empty);
            writer.flush();
        }
    }

    private static GenericRow typed(int number) {
        BigDecimal large = new BigDecimal("-12345678901234567890.123456789").multiply(BigDecimal.valueOf(number));
        return GenericRow.of(
                (long) number,
                number % 2 == 0,
                (byte) -number,
                (short) (-300 * number),
                -70_000 * number,
                number / 4f,
                number / 8.0,
                Decimal.fromBigDecimal(BigDecimal.valueOf(25L * number, 2), 10, 2),
                Decimal.fromBigDecimal(large, 38, 9),
                BinaryString.fromString("gr\u00fc\u00dfe ".repeat(number)),
                new byte[] {0, (byte) number, (byte) 255},
                (int) LocalDate.of(2024, 2, 28).plusDays(number).toEpochDay(),
                (int) (LocalTime.of(23, 59, 58, 123_000_000).toNanoOfDay() / 1_000_000),
                TimestampNtz.fromLocalDateTime(LocalDateTime.of(2024, 2, 29, 12, 0, 0, 7_000_000 * number)),
                TimestampNtz.fromLocalDateTime(LocalDateTime.of(1969, 12, 31, 23, 0, 0, 1_000_000 * number)),
                TimestampLtz.fromInstant(Instant.parse("2024-02-29T12:00:00Z").plusNanos(7_000L * number)));
    }
}
