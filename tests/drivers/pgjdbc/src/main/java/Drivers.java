// Many pgjdbc clients that each know what their answers must be. See ../README.md.

import java.io.StringReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.Queue;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.postgresql.PGConnection;

/** One thread for each client; all of them call their statements S_1, S_2, ... */
public final class Drivers implements Runnable {
    private static final AtomicLong ANSWERS = new AtomicLong();
    private static final AtomicLong KEPT = new AtomicLong();
    private static final Queue<String> PROBLEMS = new ConcurrentLinkedQueue<>();

    private interface Scenario {
        void run(int round) throws Exception;
    }

    private final String url;
    private final int number;
    private final int rounds;
    private final Random dice;
    private Connection db;

    private Drivers(String url, int number, int rounds) {
        this.url = url;
        this.number = number;
        this.rounds = rounds;
        this.dice = new Random(number);
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 6) {
            System.err.println("usage: Drivers HOST PORT USER DBNAME CLIENTS ROUNDS");
            System.exit(2);
        }
        String url = "jdbc:postgresql://" + arguments[0] + ":" + arguments[1] + "/" + arguments[3]
                + "?user=" + arguments[2];
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < Integer.parseInt(arguments[4]); n++) {
            Thread thread = new Thread(new Drivers(url, n, Integer.parseInt(arguments[5])));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        PROBLEMS.forEach(System.err::println);
        System.out.printf("{\"answers\": %d, \"kept\": %d}%n", ANSWERS.get(), KEPT.get());
        System.exit(PROBLEMS.isEmpty() ? 0 : 1);
    }

    private Properties properties() {
        Properties properties = new Properties();
        properties.setProperty("sslmode", "disable");
        properties.setProperty("prepareThreshold", "1");
        properties.setProperty("socketTimeout", "60");
        if (number % 3 == 1) { // fewer than there are texts: it closes statements, too
            properties.setProperty("preparedStatementCacheQueries", "6");
        }
        if (number % 4 == 2) {
            properties.setProperty("autosave", "always");
        }
        return properties;
    }

    @Override
    public void run() {
        List<Scenario> scenarios = new ArrayList<>(List.of(
                this::ownStatement, this::sharedTexts, this::types, this::errors, this::batch,
                this::brokenBatch, this::transaction, this::copy, this::large, this::fetchInPieces,
                this::cancel));
        int round = 0;
        try (Connection opened = DriverManager.getConnection(url, properties())) {
            db = opened;
            for (; round < rounds; round++) {
                Collections.shuffle(scenarios, dice);
                for (Scenario scenario : scenarios) {
                    scenario.run(round);
                }
            }
        } catch (Exception error) {
            StringBuilder place = new StringBuilder();
            for (StackTraceElement at : error.getStackTrace()) {
                if (at.getClassName().equals("Drivers")) {
                    place.append(' ').append(at.getMethodName()).append(':').append(at.getLineNumber());
                }
            }
            PROBLEMS.add("client " + number + ", round " + round + "," + place + ": " + error);
        }
    }

    private static void same(Object expected, Object heard) {
        ANSWERS.incrementAndGet();
        if (!Objects.equals(expected, heard)) {
            throw new IllegalStateException("expected " + brief(expected) + ", heard " + brief(heard));
        }
    }

    private static String brief(Object value) {
        String text = String.valueOf(value);
        return text.substring(0, Math.min(100, text.length()));
    }

    /** The first column of the first row. */
    private String value(String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            bind(statement, values);
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getString(1);
            }
        }
    }

    private static void bind(PreparedStatement statement, Object... values) throws SQLException {
        for (int at = 0; at < values.length; at++) {
            statement.setObject(at + 1, values[at]);
        }
    }

    /** Demands an error of this SQLSTATE. */
    private static void fails(String sqlstate, Scenario asked) throws Exception {
        String heard = "no error";
        try {
            asked.run(0);
        } catch (SQLException error) {
            heard = error.getSQLState();
        }
        same(sqlstate, heard);
    }

    /** The driver names it S_n as everybody's, and each one's text is its own. */
    private void ownStatement(int round) throws SQLException {
        String sql = "SELECT 'client " + number + "." + round / 2 + ", ' || ?::int || ', ' || ?::text";
        for (int n = 0; n < 5; n++) {
            String expected = "client " + number + "." + round / 2 + ", " + n + ", r" + round;
            same(expected, value(sql, n, "r" + round));
        }
    }

    /** All clients know the same texts, in an order and under names of their own. */
    private void sharedTexts(int round) throws SQLException {
        List<Integer> order = new ArrayList<>();
        for (int n = 0; n < 24; n++) {
            order.add(n);
        }
        Collections.shuffle(order, dice);
        for (int n : order) {
            String word = number + "-" + dice.nextInt();
            same("text " + n + ", " + word, value("SELECT 'text " + n + ", ' || ?::text", word));
        }
    }

    /** One text with parameters of several types is several statements. */
    private void types(int round) throws SQLException {
        String sql = "SELECT pg_typeof(?) || ' client " + number % 7 + "'";
        String client = " client " + number % 7;
        for (int n = 0; n < 2; n++) {
            same("integer" + client, value(sql, 1));
            same("bigint" + client, value(sql, 1L));
            same("double precision" + client, value(sql, 1.5));
            same("boolean" + client, value(sql, true));
        }
    }

    private void errors(int round) throws Exception {
        String divide = "SELECT 100 / ?::int";
        same("25", value(divide, 4));
        fails("22012", r -> value(divide, 0));
        same("20", value(divide, 5));
        fails("42601", r -> value("SELEKT ?::int", 1));
        fails("42P01", r -> value("SELECT word FROM missing_" + number + " WHERE ?", true));
        same("10", value(divide, 10));
    }

    private void batch(int round) throws SQLException {
        String sql = "INSERT INTO driver_rows VALUES (?, ?, ?)";
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            for (int n = 0; n < 20; n++) {
                bind(statement, number, round, "batch " + n);
                statement.addBatch();
            }
            for (int count : statement.executeBatch()) {
                same(1, count);
            }
        }
        KEPT.addAndGet(20);
        same("20", value("SELECT count(*) FROM driver_rows WHERE client = ? AND round = ?"
                + " AND word LIKE 'batch %'", number, round));
    }

    /** What stands behind the error is not run, and what stood before it is undone. */
    private void brokenBatch(int round) throws Exception {
        db.setAutoCommit(false);
        String sql = "INSERT INTO driver_rows VALUES (?, ? / ?, 'lost')";
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            for (int n = 0; n < 10; n++) {
                bind(statement, number, round, n == 6 ? 0 : 1);
                statement.addBatch();
            }
            fails("22012", r -> statement.executeBatch());
        }
        db.rollback();
        db.setAutoCommit(true);
        same("0", value("SELECT count(*) FROM driver_rows WHERE client = ? AND word = 'lost'", number));
    }

    private void transaction(int round) throws Exception {
        String who = "SELECT pg_backend_pid()";
        db.setAutoCommit(false);
        String backend = value(who);
        for (int n = 0; n < 3; n++) {
            try (PreparedStatement statement =
                    db.prepareStatement("INSERT INTO driver_rows VALUES (?, ?, 'kept')")) {
                bind(statement, number, round);
                same(1, statement.executeUpdate());
            }
            same(backend, value(who));
        }
        if (dice.nextBoolean()) {
            fails("22012", r -> value("SELECT 1 / ?::int", 0));
            boolean recovers = number % 4 == 2; // by autosave: savepoints before each statement
            if (recovers) {
                same(backend, value(who));
            } else {
                fails("25P02", r -> value(who));
            }
            db.rollback();
        } else {
            db.commit();
            KEPT.addAndGet(3);
        }
        db.setAutoCommit(true);
    }

    private void copy(int round) throws Exception {
        StringBuilder lines = new StringBuilder();
        for (int n = 0; n < 200; n++) {
            lines.append(number).append('\t').append(round).append("\tcopied ").append(n).append('\n');
        }
        var copies = db.unwrap(PGConnection.class).getCopyAPI();
        String sql = "COPY driver_rows FROM STDIN";
        same(200L, copies.copyIn(sql, new StringReader(lines.toString())));
        KEPT.addAndGet(200);
        fails("22P02", r -> copies.copyIn(sql, new StringReader("1\tmany\tx\n")));
        var out = new java.io.StringWriter();
        same(200L, copies.copyOut("COPY (SELECT " + number + ", word FROM driver_rows WHERE client = " + number
                + " AND round = " + round + " AND word LIKE 'copied %') TO STDOUT", out));
        for (String line : out.toString().split("\n")) {
            same(true, line.startsWith(number + "\tcopied "));
        }
    }

    private void large(int round) throws SQLException {
        String word = String.format("%04d", number);
        same(word.repeat(100_000), value("SELECT repeat(?::text, ?::int)", word, 100_000));
        try (PreparedStatement statement =
                db.prepareStatement("SELECT ?::text || n FROM generate_series(1, ?::int) n")) {
            bind(statement, word, 3000);
            int n = 0;
            try (ResultSet rows = statement.executeQuery()) {
                while (rows.next()) {
                    n += 1;
                    same(word + n, rows.getString(1));
                }
            }
            same(3000, n);
        }
    }

    /** A named portal, read by 7 rows, with another statement between. */
    private void fetchInPieces(int round) throws SQLException {
        db.setAutoCommit(false);
        try (PreparedStatement statement =
                db.prepareStatement("SELECT n + ? FROM generate_series(1, ?::int) n")) {
            statement.setFetchSize(7);
            bind(statement, number, 40);
            int n = 0;
            try (ResultSet rows = statement.executeQuery()) {
                while (rows.next()) {
                    n += 1;
                    same(number + n, rows.getInt(1));
                    if (n % 10 == 0) {
                        same("between", value("SELECT ?::text", "between"));
                    }
                }
            }
            same(40, n);
        }
        db.commit();
        db.setAutoCommit(true);
    }

    /** In a transaction, so that the client has a server to be canceled on. */
    private void cancel(int round) throws Exception {
        if (number % 5 != 0 || round > 0) {
            return;
        }
        db.setAutoCommit(false);
        value("SELECT 1");
        PGConnection canceled = db.unwrap(PGConnection.class);
        try (PreparedStatement statement = db.prepareStatement("SELECT pg_sleep(?)")) {
            statement.setDouble(1, 60);
            CountDownLatch ended = new CountDownLatch(1);
            Thread canceller = new Thread(() -> {
                try { // it may not have begun: ask again
                    while (!ended.await(100, TimeUnit.MILLISECONDS)) {
                        canceled.cancelQuery();
                    }
                } catch (SQLException | InterruptedException error) {
                    PROBLEMS.add("cancel: " + error);
                }
            });
            canceller.start();
            try {
                fails("57014", r -> statement.executeQuery());
            } finally {
                ended.countDown();
                canceller.join();
            }
        }
        db.rollback();
        db.setAutoCommit(true);
        try {
            value("SELECT 1"); // which a late request may hit
        } catch (SQLException late) {
            same("57014", late.getSQLState());
        }
        same("calm", value("SELECT ?::text", "calm"));
    }
}
