import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import org.apache.zookeeper.server.ZKDatabase;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/** Loads the data directories that are named on its input, as a server does at its start; a line of output for each. */
public class LoadDirectories {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("zookeeper.extendedTypesEnabled", "true");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        System.out.println("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                FileTxnSnapLog files = new FileTxnSnapLog(new File(line), new File(line));
                ZKDatabase database = new ZKDatabase(files);
                long zxid = database.loadDataBase();
                System.out.println("loaded " + Long.toHexString(zxid) + " " + database.getNodeCount());
                database.close();
            } catch (Throwable error) {
                System.out.println("failed " + String.valueOf(error).replace('\n', ' '));
            }
            System.out.flush();
        }
    }
}
