// A Java producer with the settings that Kafka gives it, as fast as it can. Arguments: bootstrap servers, a topic, how many records,
// bytes of each, a user, a password. Prints how many were acknowledged and how many failed; why goes to standard error.
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Flood {
    public static void main(String[] args) {
        int records = Integer.parseInt(args[2]);
        String padding = " ".repeat(Integer.parseInt(args[3]));
        AtomicInteger acknowledged = new AtomicInteger();
        AtomicInteger failed = new AtomicInteger();
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", "SCRAM-SHA-256");
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required"
            + " username=\"" + args[4] + "\" password=\"" + args[5] + "\";");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < records; i++) {
                producer.send(new ProducerRecord<>(args[1], i % 3, null, "java " + i + padding), (metadata, error) -> {
                    if (error == null) {
                        acknowledged.incrementAndGet();
                    } else {
                        failed.incrementAndGet();
                        System.err.println(error);
                    }
                });
            }
        }
        System.out.printf("%d %d%n", acknowledged.get(), failed.get());
    }
}
