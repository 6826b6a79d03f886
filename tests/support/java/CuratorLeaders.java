import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Three clients with a leader latch each, who hold one lock in turns, until a line comes and two turns are over; then it says what happened. */
public class CuratorLeaders {
    public static void main(String[] args) throws Exception {
        AtomicInteger holders = new AtomicInteger(), rounds = new AtomicInteger(), overlaps = new AtomicInteger();
        AtomicInteger twoLeaders = new AtomicInteger(), changes = new AtomicInteger();
        List<LeaderLatch> latches = new ArrayList<>();
        boolean[] stop = {false};
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 15000, 5000, new ExponentialBackoffRetry(20, 6));
            client.start();
            LeaderLatch latch = new LeaderLatch(client, "/latch", "client " + number);
            latch.start();
            latches.add(latch);
            InterProcessMutex mutex = new InterProcessMutex(client, "/lock");
            Thread thread = new Thread(() -> {
                while (!stop[0]) {
                    boolean held = false;
                    try {
                        held = mutex.acquire(10, TimeUnit.SECONDS);
                        if (held) {
                            if (holders.incrementAndGet() > 1) overlaps.incrementAndGet();
                            rounds.incrementAndGet();
                            Thread.sleep(1);
                            holders.decrementAndGet();
                        }
                    } catch (Exception error) {
                        // the connection was lost: the next round tries again
                    } finally {
                        try {
                            if (held) mutex.release();
                        } catch (Exception error) {
                            // it is deleted in the background
                        }
                    }
                }
            });
            thread.setDaemon(true);
            thread.start();
            threads.add(thread);
        }
        Thread watch = new Thread(() -> {
            int last = -1;
            while (!stop[0]) {
                int leaders = 0;
                for (int number = 0; number < 3; number++) {
                    if (latches.get(number).hasLeadership()) {
                        leaders++;
                        if (number != last) changes.incrementAndGet();
                        last = number;
                    }
                }
                if (leaders > 1) twoLeaders.incrementAndGet();
                Thread.yield();
            }
        });
        watch.setDaemon(true);
        watch.start();
        System.out.println("ready");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        for (int waited = 0; rounds.get() < 2 && waited < 3000; waited++) Thread.sleep(10);
        stop[0] = true;
        watch.join();
        System.out.println("rounds " + rounds + " overlaps " + overlaps + " leaders " + changes + " two " + twoLeaders);
        System.exit(0);
    }
}
