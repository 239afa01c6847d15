// Kafka Streams applications of the protocol `streams` (KIP-1071), one after the other, under one client id. Each counts the
// records of a topic by their values, which takes a repartition topic and a changelog. Arguments: bootstrap servers, a topic, how
// many records it has, a folder for state, and names of applications. Prints what each counted, and how its group is described.
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
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
                streams.start();
                long deadline = System.nanoTime() + Duration.ofSeconds(150).toNanos();
                while (counted.values().stream().mapToLong(Long::longValue).sum() < records && System.nanoTime() < deadline) {
                    Thread.sleep(50);
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
        settings.put("group.protocol", "streams");
        settings.put("auto.offset.reset", "earliest");
        settings.put("commit.interval.ms", "100");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("state.dir", Path.of(args[3], name).toString());
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        return settings;
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
