// What takes more than one request, on Java clients: transactions, groups of all three protocols that rebalance, describing page by page.
// Arguments: bootstrap, a name for topics and groups. Prints one line for each flow, the same whatever the bootstrap address.
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Flows {
    static final Duration TICK = Duration.ofMillis(100);
    static String bootstrap;
    static String name;
    static String other;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        name = args[1];
        other = name + "-other";
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(name, 4, (short) 3), new NewTopic(other, 3, (short) 1))).all().get();
            transactions(admin);
            read("read_committed");
            read("read_uncommitted");
            group("classic");
            group("consumer");
            share(admin);
            pages(admin);
            logDirs(admin);
            groups(admin);
        }
    }

    static Properties settings(String... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "earliest");
        for (int i = 0; i < more.length; i += 2) {
            settings.put(more[i], more[i + 1]);
        }
        return settings;
    }

    static KafkaConsumer<String, String> consumer(String... more) {
        return new KafkaConsumer<>(settings(more), new StringDeserializer(), new StringDeserializer());
    }

    static void until(String what, BooleanSupplier done) {
        long deadline = System.nanoTime() + Duration.ofSeconds(40).toNanos();
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("waited in vain for " + what);
            }
        }
    }

    @SuppressWarnings("removal")
    static void transactions(Admin admin) throws Exception {
        Properties settings = settings("transactional.id", name);
        settings.remove("auto.offset.reset");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (int round = 0; round < 3; round++) {
                producer.beginTransaction();
                for (int i = 0; i < 10; i++) {
                    producer.send(new ProducerRecord<>(name, i % 4, "key", round + "/" + i));
                }
                producer.flush(); // what an aborted transaction has not sent yet is never sent
                Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(new TopicPartition(name, 0), new OffsetAndMetadata(round + 1));
                producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(name + "-offsets"));
                if (round == 1) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        TransactionState state;
        do { // the end of a transaction is written after it was announced
            state = admin.describeTransactions(List.of(name)).description(name).get().state();
        } while (state != TransactionState.COMPLETE_COMMIT);
        Map<TopicPartition, OffsetAndMetadata> committed =
            admin.listConsumerGroupOffsets(name + "-offsets", new ListConsumerGroupOffsetsOptions().requireStable(true))
                .partitionsToOffsetAndMetadata().get();
        System.out.println("transactions: " + state + ", offset " + committed.get(new TopicPartition(name, 0)).offset());
    }

    static void read(String isolation) {
        List<String> got = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer("isolation.level", isolation)) {
            List<TopicPartition> all = new ArrayList<>();
            consumer.partitionsFor(name).forEach(info -> all.add(new TopicPartition(name, info.partition())));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            until("all records", () -> {
                consumer.poll(TICK).forEach(record -> got.add(record.value()));
                return all.stream().allMatch(partition -> consumer.position(partition) >= ends.get(partition));
            });
        }
        System.out.println(isolation + ": " + new TreeSet<>(got));
    }

    static void group(String protocol) {
        String id = name + "-" + protocol;
        List<Integer> sizes = new ArrayList<>();
        List<String> settings = new ArrayList<>(List.of("group.id", id, "group.protocol", protocol));
        if (protocol.equals("classic")) {
            settings.addAll(List.of("heartbeat.interval.ms", "200"));
        }
        String[] more = settings.toArray(new String[0]);
        try (KafkaConsumer<String, String> first = consumer(more)) {
            first.subscribe(List.of(name));
            alone(first);
            sizes.add(first.assignment().size());
            try (KafkaConsumer<String, String> second = consumer(more)) {
                second.subscribe(List.of(name));
                until("both to have a half", () -> {
                    first.poll(TICK);
                    second.poll(TICK);
                    return first.assignment().size() == 2 && second.assignment().size() == 2;
                });
                sizes.add(first.assignment().size());
                second.commitSync();
            }
            alone(first);
            sizes.add(first.assignment().size());
            first.commitSync();
        }
        System.out.println(protocol + " group: " + sizes);
    }

    static void alone(KafkaConsumer<String, String> consumer) {
        until("all partitions", () -> {
            consumer.poll(TICK);
            return consumer.assignment().size() == 4;
        });
    }

    static KafkaShareConsumer<String, String> shareConsumer() {
        Properties settings = settings("group.id", name + "-share", "share.acknowledgement.mode", "explicit");
        settings.remove("auto.offset.reset");
        KafkaShareConsumer<String, String> made =
            new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        made.subscribe(List.of(name));
        return made;
    }

    static void share(Admin admin) throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, name + "-share");
        AlterConfigOp earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(group, List.of(earliest))).all().get();
        Map<String, Integer> accepted = new TreeMap<>();
        int[] released = {0};
        // A second consumer would have to wait for the locks (30 s) of what the first one has fetched and not handed out.
        try (KafkaShareConsumer<String, String> consumer = shareConsumer()) {
            until("all records to be shared", () -> {
                for (ConsumerRecord<String, String> record : consumer.poll(TICK)) {
                    if (record.value().endsWith("/7") && record.deliveryCount().get() == 1) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                        released[0]++;
                    } else {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        accepted.merge(record.value(), (int) record.deliveryCount().get(), Integer::sum);
                    }
                }
                consumer.commitSync();
                return accepted.size() == 30;
            });
        }
        System.out.println("share group: " + accepted + ", released " + released[0]);
    }

    static void pages(Admin admin) throws Exception {
        DescribeTopicsOptions two = new DescribeTopicsOptions().partitionSizeLimitPerResponse(2);
        Map<String, Integer> found = new TreeMap<>();
        admin.describeTopics(List.of(name, other), two).allTopicNames().get()
            .forEach((topic, description) -> found.put(topic, description.partitions().size()));
        System.out.println("pages: " + found.values());
    }

    static void logDirs(Admin admin) throws Exception {
        Map<Integer, Integer> replicas = new TreeMap<>();
        admin.describeLogDirs(List.of(0, 1, 2)).allDescriptions().get().forEach((broker, dirs) -> dirs.values().forEach(dir ->
            dir.replicaInfos().keySet().stream().filter(partition -> partition.topic().equals(name)).forEach(partition ->
                replicas.merge(broker, 1, Integer::sum))));
        System.out.println("log dirs: " + replicas);
    }

    static void groups(Admin admin) throws Exception {
        Map<String, String> types = new TreeMap<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(40).toNanos();
        do { // groups whose coordinator moves while one broker after the other is asked are in nobody's list
            types.clear();
            for (GroupListing group : admin.listGroups().all().get()) {
                if (group.groupId().startsWith(name + "-")) {
                    types.put(group.groupId().substring(name.length()), group.type().map(Object::toString).orElse("none"));
                }
            }
        } while (types.size() < 4 && System.nanoTime() < deadline);
        System.out.println("groups: " + types);
    }
}
