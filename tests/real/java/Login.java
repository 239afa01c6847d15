// Java clients that log in. Arguments: a topic, how many logins a producer is to make on its connection, then files with settings.
// With each file it produces until that many logins have been made, and prints how many, and over how many connections.
import java.io.FileReader;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Login {
    public static void main(String[] args) throws Exception {
        double wanted = Double.parseDouble(args[1]);
        for (int i = 2; i < args.length; i++) {
            Properties settings = new Properties();
            try (FileReader file = new FileReader(args[i])) {
                settings.load(file);
            }
            long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                String topic = args[0] + "-" + settings.getProperty("sasl.mechanism");
                double connections;
                do {
                    producer.send(new ProducerRecord<>(topic, "value")).get();
                    connections = metric(producer, "connection-creation-total");
                    Thread.sleep(20);
                } while (metric(producer, "successful-reauthentication-total") < wanted && System.nanoTime() < deadline);
                double again = metric(producer, "successful-reauthentication-total");
                System.out.println(settings.getProperty("sasl.mechanism") + " again=" + (again >= wanted) + " connections=" + (int) connections);
            }
        }
    }

    private static double metric(KafkaProducer<String, String> producer, String name) {
        return producer.metrics().values().stream()
            .filter(m -> m.metricName().name().equals(name) && m.metricName().group().equals("producer-metrics"))
            .mapToDouble(m -> (Double) m.metricValue()).sum();
    }
}
