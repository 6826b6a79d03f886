import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.security.cert.*;
import java.util.Base64;
import javax.security.auth.x500.X500Principal;

/** Reads lines of base64: "c" and a certificate, answers whose it is; "n" and a name, answers whether it is one. */
public class Names {
  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    CertificateFactory factory = CertificateFactory.getInstance("X.509");
    for (String line; (line = in.readLine()) != null;) {
      byte[] bytes = Base64.getDecoder().decode(line.substring(1));
      String answer;
      if (line.charAt(0) == 'c') {
        X509Certificate certificate = (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(bytes));
        answer = certificate.getSubjectX500Principal().getName();
      } else {
        try {
          new X500Principal(new String(bytes, StandardCharsets.UTF_8));
          answer = "yes";
        } catch (IllegalArgumentException e) {
          answer = "no";
        }
      }
      System.out.println(Base64.getEncoder().encodeToString(answer.getBytes(StandardCharsets.UTF_8)));
    }
  }
}
