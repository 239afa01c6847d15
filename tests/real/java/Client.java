// What users do with a Java client, old or new, and what it sees of quotas. Arguments: bootstrap servers, a topic, a client id with
// low byte rates, a client id whose mutation quota one topic uses up. Prints one line for each step, the same as go/client does.
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Client {
    static String[] args;

    public static void main(String[] given) throws Exception {
        args = given;
        String topic = args[1];
        try (Admin admin = Admin.create(settings(topic))) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1), new NewTopic(topic + "-slow", 1, (short) 1))).all().get();
            System.out.println("created");
            produce(topic, topic, 300, "");
            System.out.println("produced");
            consume(topic, topic, 300);
            long committed = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().values().stream()
                .mapToLong(offset -> offset.offset()).sum();
            System.out.println("committed " + committed);
            System.out.println("producer throttled " + produce(topic + "-slow", args[2], 10, "x".repeat(10_000)));
            System.out.println("consumer throttled " + consume(topic + "-slow", args[2], 10));
            System.out.println("refused " + refused(topic));
            admin.deleteTopics(List.of(topic, topic + "-slow")).all().get();
            System.out.println("deleted");
        }
    }

    static Properties settings(String clientId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("client.id", clientId);
        return settings;
    }

    static boolean produce(String topic, String clientId, int count, String filler) throws Exception {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings(clientId), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) {
                Future<?> sent = producer.send(new ProducerRecord<>(topic, String.valueOf(i), i + filler));
                if (!filler.isEmpty()) {
                    sent.get();
                }
            }
            producer.flush();
            return throttled(producer.metrics(), "produce-throttle-time-max");
        }
    }

    /** Reads all records in a group, one by one, and says whether it was told to wait. */
    static boolean consume(String topic, String clientId, int count) {
        Properties settings = settings(clientId);
        settings.put("group.id", topic);
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.partition.fetch.bytes", "20000");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            List<String> read = new ArrayList<>();
            long deadline = System.nanoTime() + Duration.ofSeconds(90).toNanos();
            while (read.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    read.add(record.key());
                }
            }
            consumer.commitSync();
            System.out.println("consumed " + read.size() + ", " + read.stream().distinct().count() + " of them different");
            return throttled(consumer.metrics(), "fetch-throttle-time-max");
        }
    }

    static boolean throttled(Map<MetricName, ? extends Metric> metrics, String name) {
        return metrics.entrySet().stream()
            .anyMatch(metric -> metric.getKey().name().equals(name) && (Double) metric.getValue().metricValue() > 0);
    }

    static boolean refused(String topic) throws Exception {
        CreateTopicsOptions once = new CreateTopicsOptions().retryOnQuotaViolation(false);
        try (Admin admin = Admin.create(settings(args[3]))) {
            admin.createTopics(List.of(new NewTopic(topic + "-first", 5, (short) 1)), once).all().get();
            admin.createTopics(List.of(new NewTopic(topic + "-second", 5, (short) 1)), once).all().get();
            return false;
        } catch (ExecutionException e) {
            return e.getCause() instanceof ThrottlingQuotaExceededException quota && quota.throttleTimeMs() > 0;
        }
    }
}
