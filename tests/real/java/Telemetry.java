// A broker plugin that takes the metrics of clients (KIP-714) and prints how many bytes each pushed. Without one a broker has no telemetry at all.
// It comes to the broker's class path as a Java agent, hence premain.
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

public class Telemetry implements MetricsReporter, ClientTelemetry {
    public static void premain(String arguments) {
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) ->
            System.out.println("telemetry of " + payload.clientInstanceId() + ": " + payload.data().remaining() + " bytes");
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }

    @Override
    public void configure(Map<String, ?> settings) {
    }
}
