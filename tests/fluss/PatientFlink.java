// SPDX-License-Identifier: Apache-2.0
// Fluss's tiering job in one process whose parts wait a quarter of an hour for each other: it survives being paused.

import org.apache.fluss.flink.tiering.FlussLakeTieringEntrypoint;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class PatientFlink extends StreamExecutionEnvironment {
    public static void main(String[] arguments) throws Exception {
        initializeContextEnvironment(
                given -> {
                    resetContextEnvironment();
                    Configuration settings = new Configuration(given);
                    settings.setString("heartbeat.timeout", "900000");
                    settings.setString("pekko.ask.timeout", "900 s");
                    return createLocalEnvironment(2, settings);
                });
        FlussLakeTieringEntrypoint.main(arguments);
    }
}
