// A Java client that finds brokers by name: produces 30 records to a topic with 3 partitions and reads them back. Arguments: a file with
// settings, a topic, a file of hosts (a line "127.0.0.1 name ..." as in /etc/hosts).
import java.io.FileReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Named {
    public static void main(String[] args) throws Exception {
        System.setProperty("jdk.net.hosts.file", args[2]);
        Properties settings = new Properties();
        try (FileReader file = new FileReader(args[0])) {
            settings.load(file);
        }
        settings.put("group.id", args[1]);
        settings.put("auto.offset.reset", "earliest");
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(args[1], 3, (short) 1))).all().get();
            TreeSet<String> hosts = new TreeSet<>();
            for (Node node : admin.describeCluster().nodes().get()) {
                hosts.add(node.host());
            }
            System.out.println(String.join(" ", hosts));
        }
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < 30; i++) {
                producer.send(new ProducerRecord<>(args[1], i % 3, null, "value " + i)).get();
            }
        }
        int read = 0;
        long deadline = System.nanoTime() + Duration.ofSeconds(40).toNanos();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            while (read < 30 && System.nanoTime() < deadline) {
                read += consumer.poll(Duration.ofMillis(200)).count();
            }
        }
        System.out.println("read " + read);
    }
}
