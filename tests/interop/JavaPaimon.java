// SPDX-License-Identifier: Apache-2.0
// Java Paimon on a warehouse folder: `read`, `read-tag`, `compact`, `merge` (what a writer compacts by itself) or `expire` of one
// table, `copy` of its rows into another one, `delete` of those whose first column is a text. Rows go out one a line.
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.function.Consumer;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.manifest.BucketEntry;
import org.apache.paimon.options.ExpireConfig;
import org.apache.paimon.options.Options;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;

public class JavaPaimon {
    public static void main(String[] args) throws Exception {
        Options options = new Options();
        options.set("warehouse", args[0]);
        try (Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(options))) {
            FileStoreTable table = open(catalog, args[2], args[3]);
            switch (args[1]) {
                case "read" -> read(table);
                case "read-tag" -> read(table.copy(Map.of("scan.tag-name", args[4])));
                case "compact" -> compact(table, true);
                case "merge" -> compact(table, false);
                case "copy" -> write(table, open(catalog, args[2], args[4]), RowKind.INSERT, null);
                case "delete" -> write(table, table, RowKind.DELETE, args[4]);
                case "expire" -> expire(table);
                default -> throw new IllegalArgumentException(args[1]);
            }
        }
        System.out.println("done");
    }

    static FileStoreTable open(Catalog catalog, String database, String table) throws Exception {
        return (FileStoreTable) catalog.getTable(Identifier.create(database, table));
    }

    static void read(FileStoreTable table) throws Exception {
        forEach(table, row -> System.out.println("row " + text(row, table.rowType())));
    }

    static void forEach(FileStoreTable table, Consumer<InternalRow> deed) throws Exception {
        ReadBuilder builder = table.newReadBuilder();
        for (Split split : builder.newScan().plan().splits()) {
            try (RecordReader<InternalRow> reader = builder.newRead().createReader(split)) {
                reader.forEachRemaining(deed);
            }
        }
    }

    static void write(FileStoreTable from, FileStoreTable to, RowKind kind, String first) throws Exception {
        BatchWriteBuilder builder = to.copy(Map.of("write-only", "true")).newBatchWriteBuilder();
        try (BatchTableWrite write = builder.newWrite(); BatchTableCommit commit = builder.newCommit()) {
            write.withIOManager(IOManager.create(System.getProperty("java.io.tmpdir")));
            forEach(from, row -> {
                if (first != null && !text(row, from.rowType()).startsWith(first + "|")) {
                    return;
                }
                row.setRowKind(kind);
                try {
                    write.write(row);
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            });
            commit.commit(write.prepareCommit());
        }
    }

    static String text(InternalRow row, RowType type) {
        StringJoiner joined = new StringJoiner("|");
        for (int at = 0; at < type.getFieldCount(); at++) {
            joined.add(String.valueOf(InternalRow.createFieldGetter(type.getTypeAt(at), at).getFieldOrNull(row)));
        }
        return joined.toString();
    }

    static void compact(FileStoreTable table, boolean whole) throws Exception {
        BatchWriteBuilder builder = table.copy(Map.of("write-only", "false")).newBatchWriteBuilder();
        List<BucketEntry> buckets = new ArrayList<>(table.newSnapshotReader().bucketEntries());
        try (BatchTableWrite write = builder.newWrite(); BatchTableCommit commit = builder.newCommit()) {
            write.withIOManager(IOManager.create(System.getProperty("java.io.tmpdir")));
            for (BucketEntry entry : buckets) {
                write.compact(entry.partition(), entry.bucket(), whole);
            }
            commit.commit(write.prepareCommit());
        }
    }

    static void expire(FileStoreTable table) {
        ExpireConfig one = ExpireConfig.builder()
                .snapshotRetainMax(1).snapshotRetainMin(1).snapshotTimeRetain(Duration.ofMillis(1)).build();
        table.newExpireSnapshots().config(one).expire();
    }
}
