// What a broker keeps for producers, asked over JMX. Arguments: its JMX port. Prints its producer ids (one for each partition that
// an id wrote to) and the bytes of heap that are in use after a collection.
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryMXBean;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

public class BrokerState {
    public static void main(String[] args) throws Exception {
        JMXServiceURL url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://127.0.0.1:" + args[0] + "/jmxrmi");
        try (JMXConnector connector = JMXConnectorFactory.connect(url)) {
            MBeanServerConnection broker = connector.getMBeanServerConnection();
            MemoryMXBean memory = ManagementFactory.newPlatformMXBeanProxy(broker, ManagementFactory.MEMORY_MXBEAN_NAME, MemoryMXBean.class);
            memory.gc();
            Object ids = broker.getAttribute(new ObjectName("kafka.server:type=ReplicaManager,name=ProducerIdCount"), "Value");
            System.out.println(ids + " " + memory.getHeapMemoryUsage().getUsed());
        }
    }
}
