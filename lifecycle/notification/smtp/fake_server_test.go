// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// fakeBackend is the backend of a go-smtp server. It stores complete messages and refuses commands
// as configured.
type fakeBackend struct {
	mechanisms        []string
	user, password    string
	mail, rcpt, final func(nth int) error // the reply to the nth command, from 1

	mu                        sync.Mutex
	mails, rcpts, finals      int
	sessions, authentications int
	received                  []receivedMessage
}

type receivedMessage struct {
	From, To, Data string
	UTF8           bool
	Size           int64
}

func (s *fakeBackend) receivedMessages() []receivedMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received)
}

func (s *fakeBackend) NewSession(*smtp.Conn) (smtp.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions++
	return &fakeSession{backend: s}, nil
}

func (s *fakeBackend) respond(count *int, with func(int) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*count++
	if with == nil {
		return nil
	}
	return with(*count)
}

type fakeSession struct {
	backend *fakeBackend
	current receivedMessage
}

func (s *fakeSession) Reset()                   { s.current = receivedMessage{} }
func (*fakeSession) Logout() error              { return nil }
func (s *fakeSession) AuthMechanisms() []string { return s.backend.mechanisms }

func (s *fakeSession) Auth(mechanism string) (sasl.Server, error) {
	if !slices.Contains(s.backend.mechanisms, mechanism) {
		return nil, smtp.ErrAuthUnknownMechanism
	}
	check := func(user, password string) error {
		s.backend.mu.Lock()
		defer s.backend.mu.Unlock()
		s.backend.authentications++
		if user != s.backend.user || password != s.backend.password {
			// Some servers echo the password.
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "bad password " + password}
		}
		return nil
	}
	if mechanism == sasl.Login {
		return &loginServer{check: check}, nil
	}
	return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
}

func (s *fakeSession) Mail(from string, options *smtp.MailOptions) error {
	s.current.From, s.current.UTF8, s.current.Size = from, options.UTF8, options.Size
	return s.backend.respond(&s.backend.mails, s.backend.mail)
}

func (s *fakeSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.current.To = to
	return s.backend.respond(&s.backend.rcpts, s.backend.rcpt)
}

func (s *fakeSession) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := s.backend.respond(&s.backend.finals, s.backend.final); err != nil {
		return err
	}
	s.current.Data = string(data)
	s.backend.mu.Lock()
	defer s.backend.mu.Unlock()
	s.backend.received = append(s.backend.received, s.current)
	return nil
}

// loginServer sends challenges that go-sasl's client does not accept.
type loginServer struct {
	check func(user, password string) error
	user  *string
}

func (l *loginServer) Next(response []byte) ([]byte, bool, error) {
	switch {
	case response == nil:
		return []byte("User Name\x00"), false, nil
	case l.user == nil:
		user := string(response)
		l.user = &user
		return []byte("Password\x00"), false, nil
	default:
		return nil, true, l.check(*l.user, string(response))
	}
}

// serve runs a go-smtp server for a backend until the test ends.
func serve(t testing.TB, listener net.Listener, backend smtp.Backend, change func(*smtp.Server)) {
	t.Helper()
	server := smtp.NewServer(backend)
	server.Domain = "mail.example.org"
	server.MaxLineLength = maxMessageLineBytes + 2
	server.EnableSMTPUTF8 = true
	server.ErrorLog = log.New(io.Discard, "", 0)
	if change != nil {
		change(server)
	}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Close()
		_ = listener.Close() // the server may not have it yet
		done.Wait()
	})
}

func listen(t testing.TB) (net.Listener, string, int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	at := listener.Addr().(*net.TCPAddr)
	return listener, at.IP.String(), at.Port
}

// memoryListener listens for connections in memory and counts those that the server has open.
type memoryListener struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
	open   sync.WaitGroup
}

func newMemoryListener() *memoryListener {
	return &memoryListener{accept: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *memoryListener) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accept:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *memoryListener) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (*memoryListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (p *memoryListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	p.open.Add(1)
	select {
	case p.accept <- &trackedConn{Conn: far, done: sync.OnceFunc(p.open.Done)}:
		return near, nil
	case <-p.closed:
		p.open.Done()
		return nil, net.ErrClosed
	case <-ctx.Done():
		p.open.Done()
		return nil, ctx.Err()
	}
}

type trackedConn struct {
	net.Conn
	done func()
}

func (c *trackedConn) Close() error {
	defer c.done()
	return c.Conn.Close()
}

// Pseudo replies of a script.
const (
	replyDrop = "\x00drop" // close the connection
	replyHang = "\x00hang" // send nothing until the client closes
)

// scriptedServer sends the configured reply at each step, and a correct one by default. It appends
// CRLF to each reply.
type scriptedServer struct {
	replies     map[string]string // by step: greeting, EHLO, ..., "." for the end of the message
	tls         *tls.Config
	implicitTLS bool

	mu       sync.Mutex
	received []string // lines outside the message
	messages []string // complete ones
}

func smtpSteps() []string {
	return []string{"greeting", "EHLO", "STARTTLS", "TLS", "EHLO2", "AUTH", "MAIL", "RCPT", "DATA", "."}
}

func (s *scriptedServer) replyFor(step string) string {
	if reply, found := s.replies[step]; found {
		return reply
	}
	switch step {
	case "greeting":
		return "220 mail.example.org"
	case "EHLO":
		if s.tls != nil && !s.implicitTLS {
			return "250-mail.example.org\r\n250 STARTTLS"
		}
		return s.replyFor("EHLO2")
	case "EHLO2":
		return "250-mail.example.org\r\n250-8BITMIME\r\n250-SIZE\r\n250 AUTH PLAIN LOGIN"
	case "STARTTLS":
		return "220 ready"
	case "AUTH":
		return "235 welcome"
	case "DATA":
		return "354 continue"
	case "QUIT":
		return "221 bye"
	default:
		return "250 ok"
	}
}

func (s *scriptedServer) wholeMessages() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

func (s *scriptedServer) receivedLines() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.received, "\n")
}

// run serves a listener until it is closed.
func (s *scriptedServer) run(t testing.TB, listener net.Listener) {
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				_ = s.serveConn(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		all.Wait()
	})
}

var errConnectionClosed = errors.New("connection closed")

func (s *scriptedServer) serveConn(conn net.Conn) error {
	protected := false
	send := func(step string) error {
		switch reply := s.replyFor(step); reply {
		case replyDrop:
			return errConnectionClosed
		case replyHang:
			_, _ = io.Copy(io.Discard, conn)
			return errConnectionClosed
		default:
			if reply, half := strings.CutSuffix(reply, replyDrop); half {
				_, _ = io.WriteString(conn, reply)
				return errConnectionClosed
			}
			_, err := io.WriteString(conn, reply+"\r\n")
			return err
		}
	}
	secure := func() error {
		if reply := s.replyFor("TLS"); reply == replyDrop || reply == replyHang {
			return send("TLS")
		}
		server := tls.Server(conn, s.tls)
		conn, protected = server, true
		return server.Handshake()
	}
	if s.implicitTLS {
		if err := secure(); err != nil {
			return err
		}
	}
	if err := send("greeting"); err != nil {
		return err
	}
	for {
		line, err := readLine(conn)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.received = append(s.received, line)
		s.mu.Unlock()
		verb, _, _ := strings.Cut(strings.ToUpper(line), " ")
		if verb == "EHLO" && protected && !s.implicitTLS {
			verb = "EHLO2"
		}
		if err := send(verb); err != nil {
			return err
		}
		switch verb {
		case "QUIT":
			return nil
		case "STARTTLS":
			if err := secure(); err != nil {
				return err
			}
		case "DATA":
			if !strings.HasPrefix(s.replyFor("DATA"), "354") {
				continue
			}
			if err := s.readMessage(conn); err != nil {
				return err
			}
			if err := send("."); err != nil {
				return err
			}
		}
	}
}

func (s *scriptedServer) readMessage(conn net.Conn) error {
	var message strings.Builder
	for {
		line, err := readLine(conn)
		if err != nil {
			return err
		}
		if line == "." {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.messages = append(s.messages, message.String())
			return nil
		}
		message.WriteString(strings.TrimPrefix(line, ".") + "\r\n")
	}
}

// readLine reads byte by byte, so it does not consume bytes of TLS.
func readLine(conn net.Conn) (string, error) {
	var line []byte
	var b [1]byte
	for {
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return strings.TrimSuffix(string(line), "\r"), nil
		}
		line = append(line, b[0])
	}
}

// shortTimeouts returns timeouts for responsive servers, long enough for a busy machine. They only delay a failure.
func shortTimeouts() Timeouts {
	return Timeouts{
		Dial: time.Minute, TLS: time.Minute, Command: time.Minute, Body: time.Minute, Final: time.Minute, Total: 5 * time.Minute,
	}
}
