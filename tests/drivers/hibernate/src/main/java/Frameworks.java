import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.Version;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

/** Sessions of Hibernate in several threads: URL USER PASSWORD THREADS ROUNDS. Prints how many rows there are. */
public class Frameworks {
    @Entity(name = "Thing")
    public static class Thing {
        @Id
        @GeneratedValue(strategy = GenerationType.SEQUENCE)
        Long id;

        @Column(name = "thread_number")
        int thread;

        String word;

        @Version
        int version;
    }

    public static void main(String[] arguments) throws Exception {
        int threads = Integer.parseInt(arguments[3]);
        int rounds = Integer.parseInt(arguments[4]);
        // The driver prepares a statement at its fifth use, as by default.
        SessionFactory factory = new Configuration()
                .setProperty("hibernate.connection.url", arguments[0])
                .setProperty("hibernate.connection.username", arguments[1])
                .setProperty("hibernate.connection.password", arguments[2])
                .setProperty("hibernate.connection.pool_size", String.valueOf(threads))
                .setProperty("hibernate.hbm2ddl.auto", "create")
                .addAnnotatedClass(Thing.class)
                .buildSessionFactory();
        List<Callable<Void>> work = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            int thread = number;
            work.add(() -> {
                for (int round = 0; round < rounds; round++) {
                    storeAndCheck(factory, thread, round);
                }
                return null;
            });
        }
        var executor = Executors.newFixedThreadPool(threads);
        for (Future<Void> done : executor.invokeAll(work)) {
            done.get();
        }
        executor.shutdown();
        long count = factory.fromSession(
                session -> session.createSelectionQuery("select count(*) from Thing", Long.class).getSingleResult());
        factory.close();
        System.out.println("{\"things\": " + count + "}");
    }

    private static void storeAndCheck(SessionFactory factory, int thread, int round) {
        String word = thread + "-" + round;
        Long id = factory.fromTransaction(session -> {
            Thing thing = new Thing();
            thing.thread = thread;
            thing.word = word;
            session.persist(thing);
            return thing.id;
        });
        factory.inTransaction(session -> {
            Thing thing = session.find(Thing.class, id);
            expect(thing.word.equals(word), "found " + thing.word);
            thing.word = word + "!";
        });
        List<String> words = factory.fromSession(session -> session
                .createSelectionQuery("select word from Thing where thread = :thread order by id", String.class)
                .setParameter("thread", thread)
                .getResultList());
        expect(words.size() == round + 1 && words.get(round).equals(word + "!"), "words " + words);
    }

    private static void expect(boolean right, String otherwise) {
        if (!right) {
            throw new IllegalStateException(otherwise);
        }
    }
}
