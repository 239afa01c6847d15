// Java producers under refusals that come and go, one after the other, with and without transactions. Arguments: bootstrap servers,
// a topic, for how many seconds, a prefix for names, partitions, records of an idempotent producer, records of a transaction,
// transactions of a producer. Prints lines of four fields: what became of which numbers of which producer in which partition.
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Refusing {
    static String bootstrap;
    static String topic;
    static String[] login;
    static long end;
    static int partitions;
    static int records;
    static int perTransaction;
    static int transactions;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        topic = args[1];
        end = System.nanoTime() + (long) (Double.parseDouble(args[2]) * 1e9);
        String name = args[3];
        partitions = Integer.parseInt(args[4]);
        records = Integer.parseInt(args[5]);
        perTransaction = Integer.parseInt(args[6]);
        transactions = Integer.parseInt(args[7]);
        login = Arrays.copyOfRange(args, 8, args.length);
        ExecutorService threads = Executors.newFixedThreadPool(3);
        List<Future<Void>> running = new ArrayList<>();
        running.add(threads.submit(again(name + "-a", Refusing::idempotent)));
        running.add(threads.submit(again(name + "-b", Refusing::idempotent)));
        running.add(threads.submit(again(name + "-t", Refusing::transactional)));
        for (Future<Void> one : running) {
            one.get();
        }
        threads.shutdown();
    }

    interface Life {
        void live(String name) throws Exception;
    }

    static Callable<Void> again(String name, Life life) {
        return () -> {
            for (int i = 0; System.nanoTime() < end; i++) {
                life.live(name + "-" + i);
            }
            return null;
        };
    }

    static KafkaProducer<String, String> producer(String... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        if (login.length > 0) {
            settings.put("security.protocol", "SASL_PLAINTEXT");
            settings.put("sasl.mechanism", "SCRAM-SHA-256");
            settings.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required"
                + " username=\"" + login[0] + "\" password=\"" + login[1] + "\";");
        }
        settings.put("batch.size", "150");
        settings.put("linger.ms", "0");
        settings.put("retry.backoff.ms", "10");
        settings.put("retry.backoff.max.ms", "50");
        for (int i = 0; i < more.length; i += 2) {
            settings.put(more[i], more[i + 1]);
        }
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static synchronized void say(String what, String name, int partition, Object value) {
        System.out.println(what + "\t" + name + "\t" + partition + "\t" + value);
    }

    static void say(String what, String name, Map<Integer, List<Integer>> numbers) {
        numbers.forEach((partition, found) ->
            say(what, name, partition, found.stream().map(String::valueOf).collect(Collectors.joining(","))));
    }

    static void sayRetries(String name, KafkaProducer<?, ?> producer) {
        producer.metrics().forEach((metric, value) -> {
            if (metric.name().equals("record-retry-total") && metric.group().equals("producer-metrics")) {
                say("retries", name, 0, ((Double) value.metricValue()).intValue());
            }
        });
    }

    static void idempotent(String name) {
        Map<Integer, List<Integer>> written = new TreeMap<>();
        KafkaProducer<String, String> producer = producer();
        for (int i = 0; i < records; i++) {
            int number = i;
            int partition = i % partitions;
            producer.send(new ProducerRecord<>(topic, partition, null, name + " " + i), (metadata, error) -> {
                if (error == null) {
                    written.computeIfAbsent(partition, key -> new ArrayList<>()).add(number);
                } else {
                    say("failed", name, partition, number + ": " + error);
                }
            });
        }
        producer.flush();
        sayRetries(name, producer);
        producer.close();
        say("sent", name, 0, records);
        say("written", name, written);
    }

    static void transactional(String name) throws Exception {
        Random chance = new Random(name.hashCode());
        KafkaProducer<String, String> producer = producer("transactional.id", name);
        try {
            producer.initTransactions();
            for (int number = 0; number < transactions; number++) {
                Map<Integer, List<Integer>> sent = new TreeMap<>();
                producer.beginTransaction();
                for (int i = 0; i < perTransaction; i++) {
                    producer.send(new ProducerRecord<>(topic, i % 2, null, name + "/" + number + " " + i));
                    sent.computeIfAbsent(i % 2, key -> new ArrayList<>()).add(i);
                }
                if (chance.nextInt(5) < 2) {
                    Thread.sleep(chance.nextInt(50));
                    producer.abortTransaction();
                    say("aborted", name + "/" + number, sent);
                } else {
                    producer.commitTransaction();
                    say("committed", name + "/" + number, sent);
                }
            }
            sayRetries(name, producer);
        } catch (RuntimeException e) {
            say("failed", name, 0, e);
        }
        producer.close();
    }
}
