// What Java and Kafka make of certificates and rules. Lines in: "dn HEX" with the DER of a name, or "map HEX HEX" with mapping rules
// and a name. Lines out: "=HEX" with the answer, "none" when no rule applies, "error" and the reason.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class Names {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                String name = words[0].equals("dn")
                    ? new X500Principal(HexFormat.of().parseHex(words[1])).getName()
                    : SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2]));
                System.out.println("=" + HexFormat.of().formatHex(name.getBytes(StandardCharsets.UTF_8)));
            } catch (SslPrincipalMapper.NoMatchingRule e) {
                System.out.println("none");
            } catch (Exception e) {
                System.out.println("error " + e.toString().replace('\n', ' '));
            }
        }
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
