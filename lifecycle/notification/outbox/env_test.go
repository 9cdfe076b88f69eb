// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
)

// errCrash is the error of all calls of a crashed process.
var errCrash = errors.New("the process died here")

// policyClock is policy time in the synctest bubble.
type policyClock struct{ line policytime.Timeline }

func (p *policyClock) Now() time.Time                      { return p.line.At(time.Now()) }
func (p *policyClock) FromReal(t time.Time) time.Time      { return p.line.At(t) }
func (p *policyClock) RealUntil(t time.Time) time.Duration { return p.line.RealUntil(t, time.Now()) }

// sentMail is a mail that the server accepted.
type sentMail struct {
	to, id, body string
	at           time.Time
}

// testEnv holds an API server, a mail server, and sender processes.
type testEnv struct {
	t     testing.TB
	raw   client.WithWatch
	cache *noticeCache
	clock *policyClock
	// fingerprint is the fingerprint of the current configuration.
	fingerprint string
	// respond returns the reply to the n-th mail, from 0, and whether the server accepted the
	// mail despite it.
	respond func(to string, n int) (err error, accepted bool)
	// apiLatency delays each API call; with away the API server refuses writes.
	apiLatency     time.Duration
	apiUnavailable bool
	// limits and rates configure the processes.
	limits Limits
	rates  Rates

	mu    sync.Mutex
	mails []sentMail
	tries int
	// points counts API writes and mails. At crashAt the process crashes, before or after the
	// operation.
	points, crashAt int
	after           bool
	writes          int
	crashed         bool

	processes []*senderProcess
	lives     int
}

// senderProcess is a process with a Sender.
type senderProcess struct {
	*Sender
	events *events.FakeRecorder
	dead   atomic.Bool
}

// inTestEnv runs a test in a synctest bubble.
func inTestEnv(t *testing.T, do func(*testEnv)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { do(newTestEnv(t)) })
}

func newTestEnv(t testing.TB) *testEnv {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &testEnv{
		t: t, clock: &policyClock{}, fingerprint: "first", limits: DefaultLimits(),
		respond: func(string, int) (error, bool) { return nil, true },
		cache:   newNoticeCache(),
	}
	server := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Notice{}).Build()
	w.raw = w.cache.follow(server)
	w.start()
	return w
}

// start starts a process with empty memory.
func (w *testEnv) start() *senderProcess {
	w.lives++
	p := &senderProcess{events: events.NewFakeRecorder(10000)}
	c := w.newClient(p)
	p.Sender = &Sender{
		Client: c, Live: c, Composer: fakeComposer{}, Transport: &fakeTransport{w, p}, Clock: w.clock, Events: p.events,
		Fingerprint: func(context.Context) (string, error) { return w.fingerprint, nil },
		Identity:    fmt.Sprintf("life-%d", w.lives), Limits: w.limits, Rates: w.rates,
	}
	w.processes = append(w.processes, p)
	return p
}

// restart stops all processes and starts one.
func (w *testEnv) restart() *senderProcess {
	w.processes = nil
	return w.start()
}

// crashPoint is a point at which a process may crash.
func (w *testEnv) crashPoint(p *senderProcess, do func() error) error {
	w.mu.Lock()
	if p.dead.Load() {
		w.mu.Unlock()
		return errCrash
	}
	w.points++
	dies := w.points == w.crashAt
	if dies {
		w.crashed = true
		p.dead.Store(true)
	}
	w.mu.Unlock()
	if dies && !w.after {
		return errCrash
	}
	err := do()
	if dies {
		return errCrash
	}
	return err
}

// newClient returns a process's client of the API server.
func (w *testEnv) newClient(p *senderProcess) client.Client {
	write := func(do func() error) error {
		time.Sleep(w.apiLatency)
		return w.crashPoint(p, func() error {
			if w.apiUnavailable {
				return errors.New("the API server is away")
			}
			w.mu.Lock()
			w.writes++
			w.mu.Unlock()
			return do()
		})
	}
	return interceptor.NewClient(w.raw, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			time.Sleep(w.apiLatency)
			if p.dead.Load() {
				return errCrash
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if p.dead.Load() {
				return errCrash
			}
			if all, ok := list.(*v1alpha1.NoticeList); ok {
				return w.cache.list(all, opts...)
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(func() error { return createObject(ctx, c, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write(func() error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return write(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
}

// createObject creates an object with the fields that an API server sets.
func createObject(ctx context.Context, c client.Client, o client.Object, opts ...client.CreateOption) error {
	o.SetUID(types.UID("uid-of-" + o.GetName()))
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	return c.Create(ctx, o, opts...)
}

// fakeTransport is a process's transport to the mail server.
type fakeTransport struct {
	w *testEnv
	p *senderProcess
}

func (c *fakeTransport) Send(_ context.Context, to string, body []byte) error {
	time.Sleep(10 * time.Millisecond)
	return c.w.crashPoint(c.p, func() error {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		id, _, _ := strings.Cut(string(body), "\n")
		err, accepted := c.w.respond(to, c.w.tries)
		c.w.tries++
		if accepted {
			c.w.mails = append(c.w.mails, sentMail{to: to, id: id, body: string(body), at: time.Now()})
		}
		return err
	})
}

// fakeComposer renders mails whose first line is the Message-ID.
type fakeComposer struct{}

func (fakeComposer) Compose(_ context.Context, l ComposeRequest) (*Message, error) {
	id := "<" + l.Notice.Name + "@example.org>"
	lines := []string{id, fmt.Sprint("sequence ", l.Sequence)}
	for _, n := range l.Carried {
		lines = append(lines, "carries "+n.Name+" "+n.Spec.Inputs["text"], fmt.Sprint("sequence of ", n.Name, " ", l.Sequences[n.Name]))
	}
	return &Message{MessageID: id, Bytes: []byte(strings.Join(append(lines, l.Notice.Spec.Inputs["text"]), "\n"))}, nil
}

// recordNotice records a Notice that is due now.
func (w *testEnv) recordNotice(name string, change ...func(*v1alpha1.Notice)) {
	w.t.Helper()
	n := &v1alpha1.Notice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NoticeSpec{
		Recipient: v1alpha1.NoticeRecipient{Contact: v1alpha1.Contact{Name: "Anna", Email: "anna@example.org"}, TimeZone: "Europe/Berlin"},
		Kind:      v1alpha1.NoticeWorkloadStopped, DueAt: metav1.NewTime(w.clock.Now()),
		Subject: &v1alpha1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: "lab", Name: name},
		Inputs:  map[string]string{"text": "text of " + name},
	}}
	for _, c := range change {
		c(n)
	}
	if err := createObject(w.t.Context(), w.raw, n); client.IgnoreAlreadyExists(err) != nil {
		w.t.Fatal(err)
	}
}

func toRecipient(address v1alpha1.EmailAddress) func(*v1alpha1.Notice) {
	return func(n *v1alpha1.Notice) { n.Spec.Recipient.Email = address }
}

// asWarning turns the Notice into a warning of a subject's end.
func asWarning(subject, lead string, due, deadline time.Time) func(*v1alpha1.Notice) {
	return func(n *v1alpha1.Notice) {
		length := period.MustParseDuration(lead)
		n.Spec.Kind, n.Spec.Lead, n.Spec.DueAt = v1alpha1.NoticeWorkloadEnding, &length, metav1.NewTime(due)
		n.Spec.Deadline, n.Spec.Subject.Name = &metav1.Time{Time: deadline}, subject
	}
}

// advance advances time and reconciles the processes when they requested it, and after writes.
func (w *testEnv) advance(span time.Duration) {
	w.t.Helper()
	end := time.Now().Add(span)
	for {
		next, before := span, w.writes
		var group sync.WaitGroup
		results := make([]time.Duration, len(w.processes))
		for i, p := range w.processes {
			group.Go(func() {
				result, err := apply.RequeueOnConflict(p.Sender).Reconcile(w.t.Context(), ctrl.Request{})
				if err != nil && !p.dead.Load() {
					w.t.Errorf("reconciling: %v", err)
				}
				results[i] = result.RequeueAfter
			})
		}
		group.Wait()
		for i, p := range w.processes {
			if p.dead.Load() {
				w.restart()
				next = time.Second
				break
			}
			if results[i] <= 0 {
				w.t.Fatalf("Reconcile returned no requeue time")
			}
			next = min(next, results[i])
		}
		if w.writes > before {
			next = min(next, minRequeueAfter)
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		time.Sleep(min(next, left))
	}
}

func (w *testEnv) getNotice(name string) *v1alpha1.Notice {
	w.t.Helper()
	var n v1alpha1.Notice
	if err := w.raw.Get(w.t.Context(), client.ObjectKey{Name: name}, &n); err != nil {
		w.t.Fatal(err)
	}
	return &n
}

func (w *testEnv) listNotices() []v1alpha1.Notice {
	w.t.Helper()
	var all v1alpha1.NoticeList
	if err := w.raw.List(w.t.Context(), &all); err != nil {
		w.t.Fatal(err)
	}
	return all.Items
}

// phases returns the phases of all Notices with their last error.
func (w *testEnv) phases() map[string]string {
	phases := map[string]string{}
	for _, n := range w.listNotices() {
		phases[n.Name] = string(n.Status.Phase)
		if n.Status.LastError != "" {
			phases[n.Name] += ": " + n.Status.LastError
		}
	}
	return phases
}

// sentCounts counts the mails by Message-ID.
func (w *testEnv) sentCounts() map[string]int {
	sent := map[string]int{}
	for _, m := range w.mails {
		sent[strings.TrimSuffix(strings.TrimPrefix(m.id, "<"), "@example.org>")]++
	}
	return sent
}

// stateConfigMap returns the ConfigMap of the mail state.
func (w *testEnv) stateConfigMap() *corev1.ConfigMap {
	w.t.Helper()
	var object corev1.ConfigMap
	if err := w.raw.Get(w.t.Context(), mailStateObjectKey, &object); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return &object
}

// hookTransport is a transport with a hook after each reply.
type hookTransport struct {
	Transport
	then func()
}

func (a *hookTransport) Send(ctx context.Context, to string, mail []byte) error {
	defer a.then()
	return a.Transport.Send(ctx, to, mail)
}
