// What an AdminClient sees of a controller mutation quota. Arguments: bootstrap, a name for topics, a client id whose quota is
// nearly nothing, a user, a password. Prints one line for each step.
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DeleteTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;

public class Mutations {
    public static void main(String[] args) throws Exception {
        String name = args[1];
        try (Admin admin = admin(args, name)) {
            // The first takes the whole burst and more; the others are refused at first, tried again, and get there.
            admin.createTopics(List.of(topic(name + "-0", 30), topic(name + "-1", 1), topic(name + "-2", 1))).all().get();
            System.out.println("created: all");
            admin.createPartitions(Map.of(name + "-1", NewPartitions.increaseTo(30), name + "-2", NewPartitions.increaseTo(2))).all().get();
            System.out.println("grown: all");
            admin.deleteTopics(Set.of(name + "-0", name + "-1", name + "-2")).all().get();
            System.out.println("deleted: all");
        }
        try (Admin admin = admin(args, args[2])) {
            CreateTopicsOptions create = new CreateTopicsOptions().retryOnQuotaViolation(false);
            Uuid id = admin.createTopics(List.of(topic(name + "-3", 30)), create).topicId(name + "-3").get();
            System.out.println("create: " + seen(admin.createTopics(List.of(topic(name + "-4", 1)), create).all()));
            CreatePartitionsOptions grow = new CreatePartitionsOptions().retryOnQuotaViolation(false);
            System.out.println("grow: " + seen(admin.createPartitions(Map.of(name + "-3", NewPartitions.increaseTo(31)), grow).all()));
            System.out.println("grow to what it has: "
                + seen(admin.createPartitions(Map.of(name + "-3", NewPartitions.increaseTo(30)), grow).all()));
            DeleteTopicsOptions delete = new DeleteTopicsOptions().retryOnQuotaViolation(false);
            System.out.println("delete: " + seen(admin.deleteTopics(Set.of(name + "-3"), delete).all()));
            System.out.println("delete by id: " + seen(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id)), delete).all()));
            System.out.println("delete what is not there: " + seen(admin.deleteTopics(Set.of(name + "-5"), delete).all()));
        }
    }

    static Admin admin(String[] args, String clientId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("client.id", clientId);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", "SCRAM-SHA-256");
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required"
            + " username=\"" + args[3] + "\" password=\"" + args[4] + "\";");
        settings.put("default.api.timeout.ms", "60000");
        return Admin.create(settings);
    }

    static NewTopic topic(String name, int partitions) {
        return new NewTopic(name, partitions, (short) 1);
    }

    static String seen(KafkaFuture<?> future) throws Exception {
        try {
            future.get();
            return "done";
        } catch (ExecutionException e) {
            if (e.getCause() instanceof ThrottlingQuotaExceededException quota) {
                return "quota exceeded, wait " + (quota.throttleTimeMs() > 0 ? "told" : "not told");
            }
            return e.getCause().getClass().getSimpleName();
        }
    }
}
