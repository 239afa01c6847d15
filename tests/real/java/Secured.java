// What needs a login: ACLs, delegation tokens, the push of client metrics. Arguments: bootstrap, a name for topics and principals,
// the broker's log. Prints one line for each flow, the same whatever the bootstrap address and the name.
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.ExpireDelegationTokenOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.serialization.StringSerializer;

public class Secured {
    static final String MODULES = "org.apache.kafka.common.security.";
    static String bootstrap;
    static String name;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        name = args[1];
        try (Admin admin = Admin.create(plain("admin"))) {
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
            acls(admin);
            tokens(admin);
        }
        metrics(Path.of(args[2]));
    }

    static Properties plain(String user) {
        String login = MODULES + "plain.PlainLoginModule required username=\"" + user + "\" password=\"" + user + "-secret\";";
        return settings("PLAIN", login);
    }

    static Properties settings(String mechanism, String login) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", mechanism);
        settings.put("sasl.jaas.config", login);
        settings.put("default.api.timeout.ms", "30000");
        return settings;
    }

    static String send(Properties settings) throws Exception {
        settings.remove("default.api.timeout.ms");
        settings.put("enable.idempotence", "false");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(name, "value")).get();
            return "sent";
        } catch (ExecutionException e) {
            return e.getCause().getClass().getSimpleName();
        }
    }

    static void acls(Admin admin) throws Exception {
        String before = send(plain("bob"));
        AccessControlEntry may = new AccessControlEntry("User:bob", "*", AclOperation.WRITE, AclPermissionType.ALLOW);
        AclBinding acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, name, PatternType.LITERAL), may);
        admin.createAcls(List.of(acl)).all().get();
        AclBindingFilter filter = acl.toFilter();
        while (admin.describeAcls(filter).values().get().isEmpty()) {
            Thread.sleep(20);
        }
        String with = send(plain("bob"));
        int deleted = admin.deleteAcls(List.of(filter)).all().get().size();
        while (!admin.describeAcls(filter).values().get().isEmpty()) {
            Thread.sleep(20);
        }
        System.out.println("acls: " + before + ", " + with + ", deleted " + deleted + ", " + send(plain("bob")));
    }

    static void tokens(Admin admin) throws Exception {
        DelegationToken token = admin.createDelegationToken(new CreateDelegationTokenOptions()).delegationToken().get();
        String id = token.tokenInfo().tokenId();
        while (admin.describeDelegationToken().delegationTokens().get().stream().noneMatch(t -> t.tokenInfo().tokenId().equals(id))) {
            Thread.sleep(20);
        }
        String login = MODULES + "scram.ScramLoginModule required tokenauth=\"true\" username=\"" + id + "\" password=\""
            + token.hmacAsBase64String() + "\";";
        String sent = send(settings("SCRAM-SHA-256", login));
        boolean renewed = admin.renewDelegationToken(token.hmac()).expiryTimestamp().get() > 0;
        admin.expireDelegationToken(token.hmac(), new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)).expiryTimestamp().get();
        System.out.println("tokens: " + sent + ", renewed " + renewed + ", of " + token.tokenInfo().owner());
    }

    static void metrics(Path brokerLog) throws Exception {
        Properties settings = plain("admin");
        settings.remove("default.api.timeout.ms");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(name, "value")).get();
            String arrived = "telemetry of " + producer.clientInstanceId(Duration.ofSeconds(30)) + ": ";
            while (!Files.readString(brokerLog, StandardCharsets.ISO_8859_1).contains(arrived)) {
                Thread.sleep(50);
            }
            System.out.println("metrics: arrived");
        }
    }
}
