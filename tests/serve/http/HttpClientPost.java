import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;

/** Posts a body twice over one client, which offers HTTP/2 (Upgrade: h2c) as it does by default. */
class HttpClientPost {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0]))
            .header("Content-Type", "application/json")
            .POST(BodyPublishers.ofString(arguments[1]))
            .build();
        for (int number = 0; number < 2; number++) {
            HttpResponse<String> response = client.send(request, BodyHandlers.ofString());
            System.out.println(response.statusCode() + " " + response.body());
        }
    }
}
