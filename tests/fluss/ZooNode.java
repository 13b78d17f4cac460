// SPDX-License-Identifier: Apache-2.0
// Prints what a node of a cluster's ZooKeeper holds, or writes it anew. Arguments: ZooKeeper's address, path[, value].

import java.nio.charset.StandardCharsets;
import org.apache.fluss.shaded.zookeeper3.org.apache.zookeeper.ZooKeeper;

public class ZooNode {
    public static void main(String[] arguments) throws Exception {
        try (ZooKeeper zoo = new ZooKeeper(arguments[0], 30_000, event -> {})) {
            if (arguments.length > 2) {
                zoo.setData(arguments[1], arguments[2].getBytes(StandardCharsets.UTF_8), -1);
            } else {
                System.out.println(new String(zoo.getData(arguments[1], false, null), StandardCharsets.UTF_8));
            }
        }
    }
}
