// Kafka Streams applications, one after the other, under one client id: of the protocol `streams` (KIP-1071), those whose names begin
// with `classic` of the older one. Each counts the records of a topic by their values, which takes a repartition topic and a
// changelog. Arguments: bootstrap servers, a topic, how many records it has, a folder for state, and names of applications. Prints
// what each counted, and how its group is described; or why it ended.
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.Materialized;

public class Streams {
    public static void main(String[] args) throws Exception {
        long records = Long.parseLong(args[2]);
        for (String name : List.of(args).subList(4, args.length)) {
            Map<String, Long> counted = new ConcurrentHashMap<>();
            StreamsBuilder builder = new StreamsBuilder();
            builder.<String, String>stream(args[1])
                .groupBy((key, value) -> value)
                .count(Materialized.as("counts"))
                .toStream()
                .foreach(counted::put);
            try (KafkaStreams streams = new KafkaStreams(builder.build(), settings(args, name))) {
                AtomicReference<String> ended = new AtomicReference<>();
                streams.setUncaughtExceptionHandler(failure -> {
                    ended.set(cause(failure));
                    return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
                streams.start();
                long deadline = System.nanoTime() + Duration.ofSeconds(150).toNanos();
                while (counted.values().stream().mapToLong(Long::longValue).sum() < records && ended.get() == null
                    && System.nanoTime() < deadline) {
                    Thread.sleep(50);
                }
                if (ended.get() != null) {
                    System.out.println(name + " ended: " + ended.get());
                    continue;
                }
                System.out.println(name + " counted " + new TreeMap<>(counted));
                describe(args[0], name);
            }
        }
    }

    static Properties settings(String[] args, String name) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", name);
        settings.put("client.id", "app");
        settings.put("group.protocol", name.startsWith("classic") ? "classic" : "streams");
        settings.put("auto.offset.reset", "earliest");
        settings.put("commit.interval.ms", "100");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("state.dir", Path.of(args[3], name).toString());
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        return settings;
    }

    static String cause(Throwable failure) {
        while (failure.getCause() != null) {
            failure = failure.getCause();
        }
        return failure.getMessage();
    }

    static void describe(String bootstrap, String name) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            StreamsGroupDescription group = admin.describeStreamsGroups(List.of(name)).all().get().get(name);
            System.out.println(name + " is " + group.groupState() + ": " + group.members().size() + " member, "
                + group.subtopologies().size() + " subtopologies");
            TreeSet<String> internal = new TreeSet<>(admin.listTopics().names().get());
            internal.removeIf(topic -> !topic.startsWith(name + "-"));
            System.out.println(name + " has " + internal);
        }
    }
}
