// What only Java clients do: produces 50 records in a transaction, then reads and acknowledges them in a share group. Arguments: bootstrap, topic.
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Through {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("transactional.id", args[1]);
        settings.put("group.id", args[1] + "-share");
        try (Admin admin = Admin.create(settings)) {
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, args[1] + "-share");
            AlterConfigOp earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(group, List.of(earliest))).all().get();
        }
        int sent = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            for (; sent < 50; sent++) {
                producer.send(new ProducerRecord<>(args[1], Integer.toString(sent), "value " + sent));
            }
            producer.commitTransaction();
        }
        int shared = 0;
        long deadline = System.nanoTime() + Duration.ofSeconds(40).toNanos();
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            while (shared < sent && System.nanoTime() < deadline) {
                shared += consumer.poll(Duration.ofMillis(500)).count();
                consumer.commitSync();
            }
        }
        System.out.println("committed " + sent + ", shared " + shared);
    }
}
