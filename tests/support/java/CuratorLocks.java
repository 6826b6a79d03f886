import java.util.ArrayList;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.retry.RetryOneTime;

/**
 * Holds Curator's locks on a server, has others wait for them, and prints "ready SESSION SESSION". Ends with its input.
 */
public class CuratorLocks {
    static final List<CuratorFramework> clients = new ArrayList<>();

    interface Step {
        void run() throws Exception;
    }

    static void waitInLine(Step step) throws Exception {
        Thread thread = new Thread(() -> {
            try {
                step.run();
            } catch (Exception ended) {
                // the program ends while it waits
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    static CuratorFramework client(String hosts) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(hosts, 60000, 15000, new RetryOneTime(100));
        client.start();
        clients.add(client);
        return client;
    }

    static void until(CuratorFramework client, String path, int children) throws Exception {
        while (client.checkExists().forPath(path) == null || client.getChildren().forPath(path).size() < children) {
            Thread.sleep(10);
        }
    }

    public static void main(String[] arguments) throws Exception {
        CuratorFramework a = client(arguments[0]);
        CuratorFramework b = client(arguments[0]);
        new InterProcessMutex(a, "/curator/mutex").acquire();
        waitInLine(() -> new InterProcessMutex(b, "/curator/mutex").acquire());
        until(a, "/curator/mutex", 2);
        new InterProcessReadWriteLock(a, "/curator/rw").readLock().acquire();
        waitInLine(() -> new InterProcessReadWriteLock(b, "/curator/rw").writeLock().acquire());
        until(a, "/curator/rw", 2);
        new InterProcessSemaphoreV2(a, "/curator/semaphore", 1).acquire();
        waitInLine(() -> new InterProcessSemaphoreV2(b, "/curator/semaphore", 1).acquire());
        until(a, "/curator/semaphore/leases", 2);
        LeaderLatch first = new LeaderLatch(a, "/curator/latch", "a");
        first.start();
        first.await();
        new LeaderLatch(b, "/curator/latch", "b").start();
        until(a, "/curator/latch", 2);
        if (arguments.length > 1) {
            new InterProcessMutex(a, "/cycle/one").acquire();
            new InterProcessMutex(b, "/cycle/two").acquire();
            waitInLine(() -> new InterProcessMutex(a, "/cycle/two").acquire());
            waitInLine(() -> new InterProcessMutex(b, "/cycle/one").acquire());
            until(a, "/cycle/one", 2);
            until(a, "/cycle/two", 2);
        }
        StringBuilder sessions = new StringBuilder("ready");
        for (CuratorFramework client : clients) {
            sessions.append(" 0x").append(Long.toHexString(client.getZookeeperClient().getZooKeeper().getSessionId()));
        }
        System.out.println(sessions);
        while (System.in.read() >= 0) {
            Thread.onSpinWait();
        }
        System.exit(0);
    }
}
