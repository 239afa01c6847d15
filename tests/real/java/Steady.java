// A Java producer with the settings that Kafka gives it, and one without idempotence, that send one record after the other until a
// file appears, 600 each at least. Arguments: bootstrap servers, a topic, the file. Makes another file, ".going" behind its name, once
// both are at work. Prints how many records of each were acknowledged and how many failed.
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Steady {
    public static void main(String[] args) throws Exception {
        Path stop = Path.of(args[2]);
        List<String> names = List.of("java", "java-plain");
        List<AtomicInteger> acknowledged = List.of(new AtomicInteger(), new AtomicInteger());
        AtomicInteger failed = new AtomicInteger();
        List<KafkaProducer<String, String>> producers = new ArrayList<>();
        for (String name : names) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", args[0]);
            settings.put("enable.idempotence", name.equals("java"));
            producers.add(new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer()));
        }
        Path going = Path.of(args[2] + ".going");
        for (int i = 0; i < 600 || !Files.exists(stop); i++) {
            if (!Files.exists(going) && acknowledged.stream().allMatch(count -> count.get() > 100)) {
                Files.createFile(going);
            }
            for (int which = 0; which < producers.size(); which++) {
                AtomicInteger count = acknowledged.get(which);
                producers.get(which).send(new ProducerRecord<>(args[1], names.get(which) + " " + i), (metadata, error) -> {
                    if (error == null) {
                        count.incrementAndGet();
                    } else {
                        failed.incrementAndGet();
                        System.err.println(error);
                    }
                });
            }
            Thread.sleep(5);
        }
        producers.forEach(KafkaProducer::close);
        System.out.printf("%d %d %d%n", acknowledged.get(0).get(), acknowledged.get(1).get(), failed.get());
    }
}
