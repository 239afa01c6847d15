// What an AdminClient sees of a number of topics that a tenant has reached. Arguments: bootstrap, a properties file, a prefix of the
// tenant, the name of a topic that is of nobody. Prints what became of each topic.
import java.io.FileInputStream;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.KafkaFuture;

public class Numbers {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (FileInputStream file = new FileInputStream(args[1])) {
            settings.load(file);
        }
        settings.put("bootstrap.servers", args[0]);
        try (Admin admin = Admin.create(settings)) {
            print(admin.createTopics(List.of(topic(args[2] + "java"), topic(args[3]))).values());
            print(admin.createPartitions(Map.of(args[2] + "a", NewPartitions.increaseTo(21))).values());
        }
    }

    static NewTopic topic(String name) {
        return new NewTopic(name, 1, (short) 1);
    }

    static void print(Map<String, KafkaFuture<Void>> topics) throws InterruptedException {
        for (Map.Entry<String, KafkaFuture<Void>> each : new TreeMap<>(topics).entrySet()) {
            try {
                each.getValue().get();
                System.out.println(each.getKey() + " done");
            } catch (ExecutionException e) {
                System.out.println(each.getKey() + " " + e.getCause().getClass().getSimpleName() + ": " + e.getCause().getMessage());
            }
        }
    }
}
