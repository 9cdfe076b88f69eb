// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/mail"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/clock"
	"sluice.dev/api/period"
	"sluice.dev/api/scheme"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notices/message"
	"sluice.dev/lifecycle/notices/wire"
	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/clustertest"
)

var manyMails = flag.Int("mails", 10_000, "how many notices are due at once in BenchmarkMail")

const (
	// inboxes is to how many people they are.
	inboxes = 500
	// abreast is how many mails are under way at once where they are sent straight, and
	// the requests that make Notices: as many as lifecycle sends abreast.
	abreast    = 4
	postDomain = "gpu.example.org"
)

// BenchmarkMail has 10 000 Notices due at once, of work that ends in half an hour, in
// two languages, to 500 people. A lifecycle controller starts, as a process of its
// own, on a real API server, and sends them to a mail server on the same machine, over
// STARTTLS with a password. Nothing bounds the rate. None may be lost, and none come
// twice. Before, the same mails are written and sent straight, with neither an API
// server nor a record: as fast as any outbox could be.
//
//	s-first           from the process' start to the first mail
//	s-drain, mails/s  from the first mail to the last
//	MiB-peak          the most resident memory of the process, and MiB-after at the end
//	cpu-s             its processor time
//	requests/mail     of it to the API server
//	mails/s-each, -reused  sent straight, with a connection for each and 100 over one
//	x-each, x-reused  how much faster that is
func BenchmarkMail(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	for b.Loop() {
		p := newPost(b)
		notices := p.record(b)
		each, reused := p.straight(b, notices, 1), p.straight(b, notices, 100)
		p.office.empty()

		m := &measurement{B: b, process: run(b, p.cluster.Kubeconfig(), filepath.Join(b.TempDir(), clock.FileName), brake, p.config())}
		await(b, "all mails there", func() bool { return p.office.has() >= len(notices) })
		p.arrived(b, notices)
		drain := p.office.last.Sub(p.office.first).Seconds()
		rate := float64(len(notices)) / drain
		m.report(p.office.first.Sub(m.process.started).Seconds(), "s-first")
		m.report(drain, "s-drain")
		m.report(rate, "mails/s")
		m.report(m.process.resident(b, "VmHWM"), "MiB-peak")
		m.report(m.process.resident(b, "VmRSS"), "MiB-after")
		m.report(m.process.computed(b).Seconds(), "cpu-s")
		m.report(m.process.requests(b)/float64(len(notices)), "requests/mail")
		m.report(each, "mails/s-each")
		m.report(reused, "mails/s-reused")
		m.report(each/rate, "x-each")
		m.report(reused/rate, "x-reused")
		m.process.stop(b)
	}
}

// post is an API server and a mail server.
type post struct {
	cluster *cluster.Cluster
	admin   client.Client
	office  *postOffice
}

func newPost(tb testing.TB) *post {
	tb.Helper()
	c, err := cluster.Start(tb.Context(), cluster.Options{Progress: os.Stderr})
	check(tb, err)
	tb.Cleanup(func() {
		if err := c.Stop(); err != nil {
			tb.Error(err)
		}
	})
	check(tb, clustertest.InstallKinds(tb.Context(), c))
	kinds, err := scheme.New()
	check(tb, err)
	p := &post{cluster: c, office: openPostOffice(tb, c)}
	p.admin, err = client.New(c.Config(), client.Options{Scheme: kinds})
	check(tb, err)
	clustertest.Eventually(tb, func() error { return p.admin.List(tb.Context(), &v1alpha1.NoticeList{}) })
	check(tb, p.admin.Create(tb.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}}))
	check(tb, p.admin.Create(tb.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "sluice-mail"}, Type: corev1.SecretTypeBasicAuth,
		StringData: map[string]string{corev1.BasicAuthUsernameKey: postUser, corev1.BasicAuthPasswordKey: postPassword},
	}))
	return p
}

// config is lifecycle's configuration of mail.
func (p *post) config() string {
	return fmt.Sprintf("mail: {server: '%s', caFile: '%s', from: 'Sluice <sluice@%s>', credentialsSecret: {name: sluice-mail}, rate: {perMinute: 0, perRecipientPerDay: 0}}\n",
		p.office.address, p.office.authority, postDomain)
}

// record makes the Notices while nobody sends.
func (p *post) record(tb testing.TB) []*v1alpha1.Notice {
	tb.Helper()
	notices := make([]*v1alpha1.Notice, *manyMails)
	due := time.Now().Truncate(time.Second)
	making, ctx := errgroup.WithContext(tb.Context())
	making.SetLimit(abreast)
	for i := range notices {
		notices[i] = warning(i, due)
		making.Go(func() error { return p.admin.Create(ctx, notices[i]) })
	}
	check(tb, making.Wait())
	return notices
}

// warning is that a job ends soon.
func warning(i int, due time.Time) *v1alpha1.Notice {
	lead := period.MustParseDuration("30m")
	language, person := v1alpha1.LanguageEnglish, i%inboxes
	if person%2 == 0 {
		language = v1alpha1.LanguageGerman
	}
	job := "training-" + strconv.Itoa(i)
	return &v1alpha1.Notice{
		ObjectMeta: metav1.ObjectMeta{Name: "workloadending-" + job},
		Spec: v1alpha1.NoticeSpec{
			Recipient: v1alpha1.NoticeRecipient{
				Contact:  v1alpha1.Contact{Name: "Anna Müller", Email: v1alpha1.EmailAddress(fmt.Sprintf("anna.mueller%d@example.org", person))},
				Language: language, TimeZone: "Europe/Berlin",
			},
			Kind: v1alpha1.NoticeWorkloadEnding, DueAt: metav1.NewTime(due), Lead: &lead, Deadline: &metav1.Time{Time: due.Add(30 * time.Minute)},
			Subject: &v1alpha1.ObjectReference{
				APIVersion: "batch/v1", Kind: "Job", Namespace: fmt.Sprintf("thesis-%d", person), Name: job, UID: types.UID(fmt.Sprintf("uid-of-%d", i)),
			},
			Inputs: map[string]string{
				message.InputProject: fmt.Sprintf("thesis-%d", person), message.InputDepartment: "h2-students", message.InputType: "train",
				message.InputCreatedBy: fmt.Sprintf("anna.mueller%d@example.org", person), message.InputAccumulatedSeconds: "84600",
				message.InputLimit: "24h", message.InputGPUs: "1", message.InputNodePool: "dgx",
			},
		},
	}
}

// straight writes the mails and sends them, and nothing else; it returns how many a
// second.
func (p *post) straight(tb testing.TB, notices []*v1alpha1.Notice, perConnection int) float64 {
	tb.Helper()
	p.office.empty()
	authority, err := os.ReadFile(p.office.authority)
	check(tb, err)
	host, text, err := net.SplitHostPort(p.office.address)
	check(tb, err)
	port, err := strconv.Atoi(text)
	check(tb, err)
	sender, err := wire.New(wire.Config{
		Host: host, Port: port, TLS: wire.StartTLS, CA: authority, HELO: postDomain, Auth: wire.PlainAuth,
		Credentials: func(context.Context) (string, string, error) { return postUser, postPassword, nil },
		Reuse:       wire.Reuse{Messages: perConnection, Connections: abreast},
	})
	check(tb, err)
	defer sender.Close()
	sending, ctx := errgroup.WithContext(tb.Context())
	sending.SetLimit(abreast)
	began := time.Now()
	for _, n := range notices {
		sending.Go(func() error {
			m, err := message.Compose(message.Letter{Notice: n, From: mail.Address{Name: "Sluice", Address: "sluice@" + postDomain}, Domain: postDomain})
			if err != nil {
				return err
			}
			return sender.Send(ctx, wire.Envelope{From: "sluice@" + postDomain, To: string(n.Spec.Recipient.Email)}, m.Bytes)
		})
	}
	check(tb, sending.Wait())
	if n := p.office.has(); n != len(notices) {
		tb.Fatalf("of %d mails that were sent straight %d arrived", len(notices), n)
	}
	return float64(len(notices)) / time.Since(began).Seconds()
}

// arrived checks that each Notice is one mail, to its recipient, and says so.
func (p *post) arrived(tb testing.TB, notices []*v1alpha1.Notice) {
	tb.Helper()
	var list v1alpha1.NoticeList
	clustertest.Eventually(tb, func() error { // the last status follows the last mail
		check(tb, p.admin.List(tb.Context(), &list))
		for i := range list.Items {
			if n := &list.Items[i]; n.Status.Phase != v1alpha1.NoticeSent {
				return fmt.Errorf("notice %s is %s, want Sent", n.Name, n.Status.Phase)
			}
		}
		return nil
	})
	p.office.mu.Lock()
	defer p.office.mu.Unlock()
	if len(list.Items) != len(notices) || len(p.office.taken) != len(notices) || p.office.count != len(notices) {
		tb.Fatalf("%d mails, %d different, for %d notices, want %d of each", p.office.count, len(p.office.taken), len(list.Items), len(notices))
	}
	for i := range list.Items {
		n := &list.Items[i]
		to := p.office.taken[n.Status.MessageID]
		if len(to) != 1 || to[0] != string(n.Spec.Recipient.Email) || n.Status.Attempts != 1 {
			tb.Errorf("notice %s to %s was tried %d times and went to %v", n.Name, n.Spec.Recipient.Email, n.Status.Attempts, to)
		}
	}
}
