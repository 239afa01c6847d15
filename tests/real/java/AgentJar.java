// Compiles one Java source file into a jar that works as a Java agent. Arguments: source file, jar.
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.jar.Attributes;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;
import java.util.stream.Stream;
import javax.tools.ToolProvider;

public class AgentJar {
    public static void main(String[] args) throws Exception {
        Path source = Path.of(args[0]);
        String name = source.getFileName().toString().replace(".java", "");
        Path classes = Files.createTempDirectory(Path.of(args[1]).getParent(), "classes");
        String path = System.getProperty("java.class.path");
        int failed = ToolProvider.getSystemJavaCompiler().run(null, null, null, "-cp", path, "-d", classes.toString(), args[0]);
        if (failed != 0) {
            System.exit(failed);
        }
        Manifest manifest = new Manifest();
        manifest.getMainAttributes().put(Attributes.Name.MANIFEST_VERSION, "1.0");
        manifest.getMainAttributes().put(new Attributes.Name("Premain-Class"), name);
        try (JarOutputStream jar = new JarOutputStream(Files.newOutputStream(Path.of(args[1])), manifest);
                Stream<Path> made = Files.list(classes)) {
            for (Path each : made.toList()) {
                jar.putNextEntry(new JarEntry(each.getFileName().toString()));
                jar.write(Files.readAllBytes(each));
            }
        }
    }
}
