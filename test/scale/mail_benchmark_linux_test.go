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

	"sluice.dev/api"
	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	noticemail "sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/notification/smtp"
	"sluice.dev/test/clustertest"
)

var manyMails = flag.Int("mails", 10_000, "how many notices are due at once in BenchmarkMail")

const (
	// recipients is the number of recipients.
	recipients = 500
	// smtpConnections is the number of concurrent mails without lifecycle, and of concurrent
	// requests that create Notices. It equals the concurrency of lifecycle.
	smtpConnections = 4
	mailDomain      = "gpu.example.org"
)

// BenchmarkMail sends 10 000 Notices that are due at once, of workloads that end in half an
// hour, in two languages, to 500 people. The lifecycle binary runs on a real API server and
// sends to an SMTP server on the same machine, with STARTTLS and a password, without rate
// limit. No mail may be lost or sent twice. For comparison, the same mails are first rendered
// and sent without API server and outbox: no outbox can be faster.
//
//	s-first           from the start of the process to the first mail
//	s-drain, mails/s  from the first mail to the last
//	MiB-peak          peak resident memory of the process; MiB-after at the end
//	cpu-s             processor time of the process
//	requests/mail     API requests of the process
//	mails/s-each, -reused  without outbox, with a connection for each mail and for 100 mails
//	x-each, x-reused  the factor by which that is faster
func BenchmarkMail(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	for b.Loop() {
		p := newMailTest(b)
		notices := p.createNotices(b)
		each, reused := p.sendDirectly(b, notices, 1), p.sendDirectly(b, notices, 100)
		p.server.reset()

		m := &benchmarkRun{B: b, process: startLifecycle(b, p.cluster.Kubeconfig(), filepath.Join(b.TempDir(), policytime.FileName), stopLimiterPercent, p.mailConfig())}
		waitFor(b, "all mails there", func() bool { return p.server.receivedCount() >= len(notices) })
		p.assertDelivered(b, notices)
		drain := p.server.last.Sub(p.server.first).Seconds()
		rate := float64(len(notices)) / drain
		m.reportMetric(p.server.first.Sub(m.process.started).Seconds(), "s-first")
		m.reportMetric(drain, "s-drain")
		m.reportMetric(rate, "mails/s")
		m.reportMetric(m.process.memoryMiB(b, "VmHWM"), "MiB-peak")
		m.reportMetric(m.process.memoryMiB(b, "VmRSS"), "MiB-after")
		m.reportMetric(m.process.cpuTime(b).Seconds(), "cpu-s")
		m.reportMetric(m.process.apiRequests(b)/float64(len(notices)), "requests/mail")
		m.reportMetric(each, "mails/s-each")
		m.reportMetric(reused, "mails/s-reused")
		m.reportMetric(each/rate, "x-each")
		m.reportMetric(reused/rate, "x-reused")
		m.process.stop(b)
	}
}

// mailTest is an API server and an SMTP server.
type mailTest struct {
	cluster *clustertest.Cluster
	admin   client.Client
	server  *smtpServer
}

func newMailTest(tb testing.TB) *mailTest {
	tb.Helper()
	c, err := clustertest.StartCluster(tb.Context())
	mustSucceed(tb, err)
	tb.Cleanup(func() {
		if err := c.Stop(); err != nil {
			tb.Error(err)
		}
	})
	mustSucceed(tb, clustertest.InstallKinds(tb.Context(), c))
	kinds, err := api.NewScheme()
	mustSucceed(tb, err)
	p := &mailTest{cluster: c, server: startSMTPServer(tb)}
	p.admin, err = client.New(c.Config(), client.Options{Scheme: kinds})
	mustSucceed(tb, err)
	clustertest.Eventually(tb, func() error { return p.admin.List(tb.Context(), &v1alpha1.NoticeList{}) })
	mustSucceed(tb, p.admin.Create(tb.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}}))
	mustSucceed(tb, p.admin.Create(tb.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "sluice-mail"}, Type: corev1.SecretTypeBasicAuth,
		StringData: map[string]string{corev1.BasicAuthUsernameKey: smtpUser, corev1.BasicAuthPasswordKey: smtpPassword},
	}))
	return p
}

// mailConfig returns the mail section of lifecycle's configuration.
func (p *mailTest) mailConfig() string {
	return fmt.Sprintf("mail: {server: '%s', caFile: '%s', from: 'Sluice <sluice@%s>', credentialsSecret: {name: sluice-mail}, rate: {perMinute: 0, perRecipientPerDay: 0}}\n",
		p.server.address, p.server.authority, mailDomain)
}

// createNotices creates the Notices before lifecycle starts.
func (p *mailTest) createNotices(tb testing.TB) []*v1alpha1.Notice {
	tb.Helper()
	notices := make([]*v1alpha1.Notice, *manyMails)
	due := time.Now().Truncate(time.Second)
	making, ctx := errgroup.WithContext(tb.Context())
	making.SetLimit(smtpConnections)
	for i := range notices {
		notices[i] = newWarningNotice(i, due)
		making.Go(func() error { return p.admin.Create(ctx, notices[i]) })
	}
	mustSucceed(tb, making.Wait())
	return notices
}

// newWarningNotice returns a warning that a job ends.
func newWarningNotice(i int, due time.Time) *v1alpha1.Notice {
	lead := period.MustParseDuration("30m")
	language, person := v1alpha1.LanguageEnglish, i%recipients
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
				noticemail.InputProject: fmt.Sprintf("thesis-%d", person), noticemail.InputDepartment: "h2-students", noticemail.InputType: "train",
				noticemail.InputCreatedBy: fmt.Sprintf("anna.mueller%d@example.org", person), noticemail.InputAccumulatedSeconds: "84600",
				noticemail.InputLimit: "24h", noticemail.InputGPUs: "1", noticemail.InputNodePool: "dgx",
			},
		},
	}
}

// sendDirectly renders and sends the mails without outbox, and returns the rate per second.
func (p *mailTest) sendDirectly(tb testing.TB, notices []*v1alpha1.Notice, perConnection int) float64 {
	tb.Helper()
	p.server.reset()
	authority, err := os.ReadFile(p.server.authority)
	mustSucceed(tb, err)
	host, text, err := net.SplitHostPort(p.server.address)
	mustSucceed(tb, err)
	port, err := strconv.Atoi(text)
	mustSucceed(tb, err)
	sender, err := smtp.New(smtp.Config{
		Host: host, Port: port, TLS: smtp.StartTLS, CA: authority, HELO: mailDomain, Auth: smtp.PlainAuth,
		Credentials: func(context.Context) (string, string, error) { return smtpUser, smtpPassword, nil },
		Reuse:       smtp.Reuse{Messages: perConnection, Connections: smtpConnections},
	})
	mustSucceed(tb, err)
	defer sender.Close()
	sending, ctx := errgroup.WithContext(tb.Context())
	sending.SetLimit(smtpConnections)
	began := time.Now()
	for _, n := range notices {
		sending.Go(func() error {
			m, err := noticemail.Compose(noticemail.ComposeRequest{Notice: n, From: mail.Address{Name: "Sluice", Address: "sluice@" + mailDomain}, Domain: mailDomain})
			if err != nil {
				return err
			}
			return sender.Send(ctx, smtp.Envelope{From: "sluice@" + mailDomain, To: string(n.Spec.Recipient.Email)}, m.Bytes)
		})
	}
	mustSucceed(tb, sending.Wait())
	if n := p.server.receivedCount(); n != len(notices) {
		tb.Fatalf("of %d mails without outbox %d arrived", len(notices), n)
	}
	return float64(len(notices)) / time.Since(began).Seconds()
}

// assertDelivered checks that each Notice is Sent, with one mail to its recipient.
func (p *mailTest) assertDelivered(tb testing.TB, notices []*v1alpha1.Notice) {
	tb.Helper()
	var list v1alpha1.NoticeList
	clustertest.Eventually(tb, func() error { // the last status is written after the last mail
		mustSucceed(tb, p.admin.List(tb.Context(), &list))
		for i := range list.Items {
			if n := &list.Items[i]; n.Status.Phase != v1alpha1.NoticeSent {
				return fmt.Errorf("notice %s is %s, want Sent", n.Name, n.Status.Phase)
			}
		}
		return nil
	})
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	if len(list.Items) != len(notices) || len(p.server.received) != len(notices) || p.server.count != len(notices) {
		tb.Fatalf("%d mails, %d different, for %d notices, want %d of each", p.server.count, len(p.server.received), len(list.Items), len(notices))
	}
	for i := range list.Items {
		n := &list.Items[i]
		to := p.server.received[n.Status.MessageID]
		if len(to) != 1 || to[0] != string(n.Spec.Recipient.Email) || n.Status.Attempts != 1 {
			tb.Errorf("notice %s to %s had %d attempts and went to %v", n.Name, n.Spec.Recipient.Email, n.Status.Attempts, to)
		}
	}
}
