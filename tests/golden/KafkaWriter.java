/* Writes with Kafka's own producer: every codec, headers, null keys and values, a committed and an aborted transaction.
 * Run from source: java -cp "$KAFKA_LIBS/*" KafkaWriter.java HOST:PORT RECORDS. Prints "topic offset value" of every
 * record that a consumer of all records has to see, in order of topic and offset. */
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class KafkaWriter {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};

    static Properties settings(String address) {
        Properties p = new Properties();
        p.put("bootstrap.servers", address);
        p.put("key.serializer", ByteArraySerializer.class.getName());
        p.put("value.serializer", ByteArraySerializer.class.getName());
        p.put("linger.ms", "5");
        return p;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void send(Producer<byte[], byte[]> producer, String topic, int from, int count) throws Exception {
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        List<String> values = new ArrayList<>();
        for (int i = from; i < from + count; i++) {
            String value = topic + "-value-" + i + "-" + "x".repeat(i % 97);
            ProducerRecord<byte[], byte[]> r =
                new ProducerRecord<>(topic, 0, 1700000000000L + i, i % 3 == 0 ? null : bytes("key-" + i % 7), bytes(value));
            if (i % 5 == 0)
                r.headers().add("h", bytes("header")).add("none", null);
            answers.add(producer.send(r));
            values.add(value);
        }
        producer.flush();
        for (int i = 0; i < count; i++)
            System.out.println(topic + " " + answers.get(i).get().offset() + " " + values.get(i));
    }

    public static void main(String[] args) throws Exception {
        int records = Integer.parseInt(args[1]);
        List<NewTopic> topics = new ArrayList<>();
        for (String codec : CODECS)
            topics.add(new NewTopic("k-" + codec, 1, (short) 1).configs(Map.of("segment.bytes", "1048576")));
        topics.add(new NewTopic("k-transactions", 1, (short) 1));
        try (Admin admin = Admin.create(settings(args[0]))) {
            admin.createTopics(topics).all().get(60, TimeUnit.SECONDS);
        }
        for (String codec : CODECS) {
            Properties p = settings(args[0]);
            p.put("compression.type", codec);
            try (Producer<byte[], byte[]> producer = new KafkaProducer<>(p)) {
                send(producer, "k-" + codec, 0, records);
            }
        }
        Properties p = settings(args[0]);
        p.put("transactional.id", "t");
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(p)) {
            producer.initTransactions();
            for (int i = 0; i < 4; i++) {
                producer.beginTransaction();
                send(producer, "k-transactions", 10 * i, 10);
                if (i % 2 == 0)
                    producer.commitTransaction();
                else
                    producer.abortTransaction();
            }
        }
    }
}
