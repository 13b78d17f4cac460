// SPDX-License-Identifier: Apache-2.0
// Runs SQL statements of Flink's batch mode in one process: a statement a line on standard input, answers as JSON lines.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

public class FlinkSql {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set(RestOptions.BIND_PORT, "0");
        settings.setString("parallelism.default", "1");
        settings.setString("table.dml-sync", "true");
        settings.setString("taskmanager.memory.network.max", "64mb");
        TableEnvironment tables = TableEnvironment.create(
                EnvironmentSettings.newInstance().inBatchMode().withConfiguration(settings).build());
        BufferedReader statements = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        System.out.println("{\"ready\": true}");
        for (String line = statements.readLine(); line != null; line = statements.readLine()) {
            System.out.println(answer(tables, line));
            System.out.flush();
        }
    }

    private static String answer(TableEnvironment tables, String statement) {
        try {
            TableResult result = tables.executeSql(statement);
            List<String> rows = new ArrayList<>();
            try (CloseableIterator<Row> found = result.collect()) {
                while (found.hasNext()) {
                    rows.add(json(found.next()));
                }
            }
            return "{\"rows\": [" + String.join(", ", rows) + "]}";
        } catch (Throwable failure) {
            StringBuilder words = new StringBuilder();
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                words.append(cause).append("; ");
            }
            return "{\"error\": " + quoted(words.toString()) + "}";
        }
    }

    private static String json(Row row) {
        List<String> values = new ArrayList<>();
        for (int place = 0; place < row.getArity(); place++) {
            Object value = row.getField(place);
            values.add(value == null || value instanceof Number ? String.valueOf(value) : quoted(value.toString()));
        }
        return "[" + String.join(", ", values) + "]";
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char sign : text.toCharArray()) {
            quoted.append(sign == '"' || sign == '\\' ? "\\" + sign : sign < ' ' ? String.format("\\u%04x", (int) sign) : sign);
        }
        return quoted.append('"').toString();
    }
}
