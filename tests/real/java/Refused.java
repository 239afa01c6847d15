// What a Java producer with the settings that Kafka gives it sees of refusals. Arguments: bootstrap servers, a topic, acks, a
// folder, a user, a password. Sends three records; then there is a file `asked` in the folder, and once there is one `go`, sends
// three more. Prints what became of each, and at the end how long it was told to wait at most.
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Refused {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("acks", args[2]);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", "SCRAM-SHA-256");
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required"
            + " username=\"" + args[4] + "\" password=\"" + args[5] + "\";");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            send(producer, args[1], 0);
            Files.createFile(Path.of(args[3], "asked"));
            while (!Files.exists(Path.of(args[3], "go"))) {
                Thread.sleep(20);
            }
            send(producer, args[1], 3);
            producer.metrics().forEach((metric, value) -> {
                if (metric.name().equals("produce-throttle-time-max")) {
                    System.out.println("told " + ((Double) value.metricValue() > 0));
                }
            });
        }
    }

    static void send(KafkaProducer<String, String> producer, String topic, int first) throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        for (int i = first; i < first + 3; i++) {
            sent.add(producer.send(new ProducerRecord<>(topic, 0, null, String.valueOf(i))));
        }
        for (Future<?> one : sent) {
            try {
                one.get();
                System.out.println("written");
            } catch (ExecutionException e) {
                String said = e.getCause().getMessage();
                boolean why = List.of("Too many bytes in", "earlier batch", "would pass its limit").stream().anyMatch(said::contains);
                System.out.println(e.getCause().getClass().getSimpleName() + (why ? ", with the reason" : ""));
            }
        }
    }
}
