// A Java producer with the settings that Kafka gives it, but for small batches, that sends records one behind the other. Arguments:
// bootstrap servers, a topic, how many, a user, a password. Prints how many were written, how many failed and why, and the longest throttle time in ms.
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Late {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("batch.size", 1);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", "SCRAM-SHA-256");
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required"
            + " username=\"" + args[3] + "\" password=\"" + args[4] + "\";");
        AtomicInteger written = new AtomicInteger();
        TreeSet<String> errors = new TreeSet<>();
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            producer.send(new ProducerRecord<>(args[1], Integer.toString(i)), (metadata, error) -> {
                if (error == null) {
                    written.incrementAndGet();
                } else {
                    errors.add(error.getClass().getSimpleName());
                }
            });
        }
        producer.flush();
        double told = producer.metrics().entrySet().stream().filter(metric -> metric.getKey().name().equals("produce-throttle-time-max"))
            .mapToDouble(metric -> (double) metric.getValue().metricValue()).max().orElse(0);
        producer.close();
        System.out.println(written + " " + errors + " " + Math.round(told));
    }
}
