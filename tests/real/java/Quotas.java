// What an AdminClient makes of quotas. Argument: a properties file. One order a line on standard input, each answered at once:
//   alter|validate ENTITY KEY=VALUE|KEY=- … [/ ENTITY …]      KEY=- takes a limit away; each ENTITY is an entry of one request
//   describe [strict] [TYPE=NAME|TYPE=|TYPE=*] …              exact, default, any
//   await [!]TEXT describe …        the same, again and again until TEXT is in the answer (or is not), or it is refused: brokers
//                                   hear of changes later
// ENTITY is TYPE=NAME[,TYPE=NAME], without a name for a default. A line of output begins with the number of its order.
import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterClientQuotasOptions;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

public class Quotas {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (FileReader file = new FileReader(args[0])) {
            settings.load(file);
        }
        settings.putIfAbsent("client.id", "java-quotas");
        settings.put("default.api.timeout.ms", "30000");
        try (Admin admin = Admin.create(settings); BufferedReader orders = new BufferedReader(new InputStreamReader(System.in))) {
            String order;
            for (int number = 0; (order = orders.readLine()) != null; number++) {
                List<String> words = new ArrayList<>(Arrays.asList(order.trim().split(" +")));
                for (String line : answer(admin, words)) {
                    System.out.println(number + " " + line);
                }
            }
        }
    }

    static List<String> answer(Admin admin, List<String> words) throws Exception {
        String what = words.remove(0);
        if (!what.equals("await")) {
            return what.equals("describe") ? describe(admin, words) : alter(admin, words, what.equals("validate"));
        }
        String text = words.remove(0);
        boolean there = !text.startsWith("!");
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (true) {
            List<String> lines = describe(admin, new ArrayList<>(words.subList(1, words.size())));
            boolean refused = !lines.isEmpty() && lines.get(0).startsWith("!");
            if (refused || lines.toString().contains(there ? text : text.substring(1)) == there || System.nanoTime() > deadline) {
                return lines;
            }
            Thread.sleep(50);
        }
    }

    static List<String> alter(Admin admin, List<String> words, boolean validate) throws Exception {
        List<ClientQuotaAlteration> entries = new ArrayList<>();
        for (String part : String.join(" ", words).split(" / ")) {
            String[] pieces = part.split(" ");
            List<ClientQuotaAlteration.Op> ops = new ArrayList<>();
            for (String op : Arrays.asList(pieces).subList(1, pieces.length)) {
                String[] pair = op.split("=");
                ops.add(new ClientQuotaAlteration.Op(pair[0], pair[1].equals("-") ? null : Double.valueOf(pair[1])));
            }
            entries.add(new ClientQuotaAlteration(entity(pieces[0]), ops));
        }
        List<String> lines = new ArrayList<>();
        admin.alterClientQuotas(entries, new AlterClientQuotasOptions().validateOnly(validate)).values()
            .forEach((entity, future) -> lines.add(named(entity) + ": " + seen(future)));
        lines.sort(null);
        return lines;
    }

    static List<String> describe(Admin admin, List<String> words) throws Exception {
        boolean strict = words.remove("strict");
        List<ClientQuotaFilterComponent> components = new ArrayList<>();
        for (String word : words) {
            String type = word.substring(0, word.indexOf('=')), name = word.substring(word.indexOf('=') + 1);
            components.add(name.isEmpty() ? ClientQuotaFilterComponent.ofDefaultEntity(type)
                : name.equals("*") ? ClientQuotaFilterComponent.ofEntityType(type)
                : ClientQuotaFilterComponent.ofEntity(type, name));
        }
        ClientQuotaFilter filter = strict ? ClientQuotaFilter.containsOnly(components) : ClientQuotaFilter.contains(components);
        List<String> lines = new ArrayList<>();
        try {
            admin.describeClientQuotas(filter).entities().get()
                .forEach((entity, limits) -> lines.add(named(entity) + ": " + new TreeMap<>(limits)));
        } catch (ExecutionException e) {
            lines.add("! " + e.getCause().getClass().getSimpleName());
        }
        lines.sort(null);
        return lines;
    }

    static ClientQuotaEntity entity(String text) {
        Map<String, String> parts = new LinkedHashMap<>();
        for (String part : text.split(",")) {
            String name = part.substring(part.indexOf('=') + 1);
            parts.put(part.substring(0, part.indexOf('=')), name.isEmpty() ? null : name);
        }
        return new ClientQuotaEntity(parts);
    }

    static String named(ClientQuotaEntity entity) {
        List<String> parts = new ArrayList<>();
        new TreeMap<>(entity.entries()).forEach((type, name) -> parts.add(type + "=" + (name == null ? "" : name)));
        return String.join(",", parts);
    }

    static String seen(KafkaFuture<?> future) {
        try {
            future.get();
            return "done";
        } catch (ExecutionException e) {
            return e.getCause().getClass().getSimpleName() + ": " + e.getCause().getMessage();
        } catch (InterruptedException e) {
            throw new RuntimeException(e);
        }
    }
}
