// A Java producer with Kafka's settings that sends so many records of 1 KiB per second until a file appears. Arguments: a file with
// settings, a topic, records per second, a file to make once the first is written, the file to wait for. Prints how many were
// written, how many failed, in how many seconds, and how long one took in ms: half of them, and all but one in a hundred.
import java.io.FileReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Ordinary {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (FileReader file = new FileReader(args[0])) {
            settings.load(file);
        }
        long pause = 1_000_000_000L / Long.parseLong(args[2]);
        Path stop = Path.of(args[4]);
        List<Long> took = Collections.synchronizedList(new ArrayList<>());
        int[] failed = {0};
        long began;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>(args[1], new byte[1024])).get();
            Files.createFile(Path.of(args[3]));
            began = System.nanoTime();
            for (long next = began; !Files.exists(stop); next += pause) {
                while (System.nanoTime() < next) {
                    Thread.sleep(1);
                }
                long sent = System.nanoTime();
                producer.send(new ProducerRecord<>(args[1], new byte[1024]), (metadata, error) -> {
                    if (error == null) {
                        took.add(System.nanoTime() - sent);
                    } else {
                        failed[0]++;
                        System.err.println(error);
                    }
                });
            }
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        Collections.sort(took);
        System.out.printf("%d %d %f %f %f%n", took.size(), failed[0], seconds, at(took, 0.5), at(took, 0.99));
    }

    static double at(List<Long> took, double share) {
        return took.isEmpty() ? 0 : took.get((int) (share * (took.size() - 1))) / 1e6;
    }
}
