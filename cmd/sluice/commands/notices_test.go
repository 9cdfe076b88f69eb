// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/notification/outbox"
)

var noticesNow = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// exampleNotice returns the Notice of an example mail, changed.
func exampleNotice(t *testing.T, name string, change func(*v1alpha1.Notice)) *v1alpha1.Notice {
	t.Helper()
	for _, request := range mail.Examples() {
		if request.Notice.Name == name {
			n := request.Notice
			change(n)
			return n
		}
	}
	t.Fatalf("no example %s", name)
	return nil
}

// newOutboxClient returns a cluster with one Notice in each phase, and a digest.
func newOutboxClient(t *testing.T, calls interceptor.Funcs, more ...client.Object) client.WithWatch {
	t.Helper()
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: noticesNow.Add(d)} }
	lead := period.MustParseDuration("24h")
	objects := append(more,
		exampleNotice(t, "workloadending-job.de", func(n *v1alpha1.Notice) {
			n.Name, n.Spec.Lead = "sent", &lead
			n.Status = v1alpha1.NoticeStatus{
				Phase:     v1alpha1.NoticeSent,
				Attempts:  1,
				SentAt:    at(-time.Minute),
				ClaimedAt: at(-time.Minute),
				ClaimedBy: "lifecycle_1",
				MessageID: "<1@gpu.example.org>",
			}
		}),
		exampleNotice(t, "workloadidle-notebook.en", func(n *v1alpha1.Notice) {
			n.Name, n.Spec.Recipient.Email, n.Spec.Inputs[mail.InputProject] = "failed", "Ben@example.org", "course-ml"
			n.Status = v1alpha1.NoticeStatus{
				Phase:     v1alpha1.NoticeFailed,
				Attempts:  2,
				LastError: "550 5.1.1 <ben@example.org>: no such user here\x1b[2J, and many words more of what is wrong",
			}
		}),
		exampleNotice(t, "extensiondecided-approved.en", func(n *v1alpha1.Notice) {
			n.Name = "retried"
			n.Status = v1alpha1.NoticeStatus{Phase: v1alpha1.NoticePending, Attempts: 3, RetryAt: at(time.Hour), LastError: "421 later"}
		}),
		exampleNotice(t, "projectexpiring-month.en", func(n *v1alpha1.Notice) { n.Name, n.Spec.Digest = "carried", "digest" }),
		exampleNotice(t, "digest-two.en", func(n *v1alpha1.Notice) {
			n.Name, n.Spec.Inputs = "digest", map[string]string{outbox.InputCarriedNotices: "carried,gone"}
		}),
		exampleNotice(t, "weeklysummary-week.de", func(n *v1alpha1.Notice) {
			n.Name, n.Status.Phase = "muted", v1alpha1.NoticeSuperseded
		}),
	)
	return newFakeClient(t, calls, objects...)
}

func TestListNotices(t *testing.T) {
	c := newOutboxClient(t, interceptor.Funcs{})
	rows, err := listNotices(t.Context(), c, noticeFilter{})
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, tableText(t, noticeTable(rows, time.UTC)), "notices/list.txt")
	tests := map[string]struct {
		filter noticeFilter
		want   []string
	}{
		"a project's, and the digest": {noticeFilter{project: "thesis-mueller"}, []string{"carried", "digest", "retried", "sent"}},
		"another's":                   {noticeFilter{project: "course-ml"}, []string{"failed"}},
		"a recipient's":               {noticeFilter{recipient: "ben@EXAMPLE.org"}, []string{"failed"}},
		"pending, without a phase":    {noticeFilter{phase: v1alpha1.NoticePending}, []string{"carried", "digest", "retried"}},
		"none":                        {noticeFilter{project: "thesis-mueller", phase: v1alpha1.NoticeFailed}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			rows, err := listNotices(t.Context(), c, tc.filter)
			if err != nil || rows == nil {
				t.Fatal(rows, err)
			}
			var got []string
			for _, r := range rows {
				got = append(got, r.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNoticePhaseFlag(t *testing.T) {
	for text, want := range map[string]string{"sent": "Sent", "FAILED": "Failed"} {
		cmd := newNoticesListCommand()
		if err := cmd.ParseFlags([]string{"--phase", text}); err != nil || cmd.Flag("phase").Value.String() != want {
			t.Errorf("%q: %q, %v", text, cmd.Flag("phase").Value, err)
		}
	}
	if err := newNoticesListCommand().ParseFlags([]string{"--phase", "lost"}); err == nil || !strings.Contains(err.Error(), "want Pending") {
		t.Error(err)
	}
	if phase := newNoticesListCommand().Flag("phase").Value.String(); phase != "" {
		t.Errorf("without --phase it is %q", phase)
	}
}

func TestGetNoticeDetails(t *testing.T) {
	c := newOutboxClient(t, interceptor.Funcs{})
	for _, name := range []string{"sent", "failed", "digest", "muted"} {
		details, err := getNoticeDetails(t.Context(), c, name)
		if err != nil {
			t.Fatal(err)
		}
		golden.Assert(t, details.text(time.UTC), "notices/show-"+name+".txt")
	}
	if _, err := getNoticeDetails(t.Context(), c, "none"); err == nil || !strings.Contains(err.Error(), "`sluice notices list`") {
		t.Error(err)
	}
}

func TestResendNotice(t *testing.T) {
	c := newOutboxClient(t, interceptor.Funcs{})
	for name, refused := range map[string]string{
		"sent": "", "failed": "", "muted": "",
		"retried": "next attempt is at 2026-11-22T13:00:00Z", "carried": "is Pending", "none": "not found",
	} {
		_, err := resendNotice(t.Context(), c, name, noticesNow)
		if (err == nil) != (refused == "") || err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("%s: %v, want %q", name, err, refused)
		}
		if err != nil {
			continue
		}
		n := &v1alpha1.Notice{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
			t.Fatal(err)
		}
		if n.Annotations[v1alpha1.AnnotationResend] != "2026-11-22T12:00:00Z" {
			t.Errorf("%s: %v", name, n.Annotations)
		}
		// The outbox accepts the request.
		decision := outbox.Decide(
			outbox.Instant{Machine: noticesNow.Add(time.Minute), Policy: noticesNow.Add(time.Minute)},
			n,
			outbox.NoticeContext{},
			outbox.DefaultLimits(),
		)
		if decision.Action != outbox.ActionSend {
			t.Errorf("%s: the outbox decides %+v", name, decision)
		}
	}
}

// A request in the second of the last attempt counts, and so does one of a slow clock.
func TestResendNoticeInSameSecond(t *testing.T) {
	for name, after := range map[string]time.Duration{"in the same second": 900 * time.Millisecond, "before it": -time.Minute} {
		t.Run(name, func(t *testing.T) {
			c := newOutboxClient(t, interceptor.Funcs{})
			claimed := noticesNow.Add(-time.Minute)
			if _, err := resendNotice(t.Context(), c, "sent", claimed.Add(after)); err != nil {
				t.Fatal(err)
			}
			n := &v1alpha1.Notice{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "sent"}, n); err != nil {
				t.Fatal(err)
			}
			at := outbox.Instant{Machine: noticesNow, Policy: noticesNow}
			if d := outbox.Decide(at, n, outbox.NoticeContext{}, outbox.DefaultLimits()); d.Action != outbox.ActionSend {
				t.Errorf("requested at %s, claimed at %s: %+v", n.Annotations[v1alpha1.AnnotationResend], n.Status.ClaimedAt.UTC(), d)
			}
		})
	}
}

func mailStateConfigMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: "sluice-mail"}, Data: data}
}

func mailStateData(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	object := &corev1.ConfigMap{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "sluice-system", Name: "sluice-mail"}, object); client.IgnoreNotFound(
		err,
	) != nil {
		t.Fatal(err)
	}
	return object.Data
}

const pausedSince = "2026-11-01T00:00:00Z"

func TestPauseAndResumeMail(t *testing.T) {
	paused := map[string]string{"paused": "true", "reason": "it moves", "pausedAt": "2026-11-22T12:00:00Z"}
	with := func(extra ...string) map[string]string {
		m := map[string]string{}
		for k, v := range paused {
			m[k] = v
		}
		for i := 0; i < len(extra); i += 2 {
			m[extra[i]] = extra[i+1]
		}
		return m
	}
	tests := map[string]struct {
		before             map[string]string
		text               string
		pausedAs, resumeAs map[string]string
	}{
		"never paused": {nil, "Mail is not paused.\n", paused, map[string]string{}},
		"set up": {
			map[string]string{"since": pausedSince},
			"Mail is not paused.\n",
			with("since", pausedSince),
			map[string]string{"since": pausedSince},
		},
		"by lifecycle": {
			map[string]string{"since": pausedSince, "paused": "true", "reason": "535 no\x1b", "pausedAt": pausedSince, "configuration": "abc"},
			"Mail is paused since 2026-11-01 00:00:00 UTC: notices wait, and none is lost.\nReason: 535 no\\x1b\n" +
				"Mail resumes with a changed configuration or Secret. To retry with the same: sluice notices resume\n",
			with("since", pausedSince),
			map[string]string{"since": pausedSince},
		},
		"by an administrator": {
			map[string]string{"paused": "true"},
			"Mail is paused: notices wait, and none is lost.\nTo resume mail: sluice notices resume\n", paused,
			map[string]string{},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newOutboxClient(t, interceptor.Funcs{})
			if tc.before != nil {
				c = newOutboxClient(t, interceptor.Funcs{}, mailStateConfigMap(tc.before))
			}
			state, err := getMailState(t.Context(), c)
			if diff := cmp.Diff(tc.text, state.text(time.UTC)); err != nil || diff != "" {
				t.Fatal(err, diff)
			}
			if _, err := pauseMail(t.Context(), c, "it moves", noticesNow); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.pausedAs, mailStateData(t, c)); diff != "" {
				t.Error(diff)
			}
			if s, err := resumeMail(t.Context(), c); err != nil || s.Paused {
				t.Fatal(s, err)
			}
			if diff := cmp.Diff(tc.resumeAs, mailStateData(t, c), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if _, err := resumeMail(t.Context(), c); !errors.Is(err, errMailNotPaused) {
				t.Error(err)
			}
		})
	}
	if _, err := pauseMail(t.Context(), newOutboxClient(t, interceptor.Funcs{}), "two\nlines", noticesNow); err == nil {
		t.Error("a reason of two lines")
	}
}

// Lifecycle may write the state while an administrator pauses mail.
func TestPauseMailKeepsConcurrentUpdates(t *testing.T) {
	tries := 0
	c := newOutboxClient(t, interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if tries++; tries == 1 {
				if err := w.Update(ctx, mailStateConfigMap(map[string]string{"since": pausedSince})); err != nil {
					return err
				}
			}
			return w.Patch(ctx, o, p, opts...)
		},
	}, mailStateConfigMap(nil))
	if _, err := pauseMail(t.Context(), c, "", noticesNow); err != nil || tries != 2 {
		t.Fatal(tries, err)
	}
	if got := mailStateData(t, c); got["since"] != pausedSince || got["paused"] != "true" {
		t.Error(got)
	}
}

func TestNoticeCommandsForbidden(t *testing.T) {
	c := newOutboxClient(t, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return forbiddenError()
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return forbiddenError()
		},
	})
	_, listed := listNotices(t.Context(), c, noticeFilter{})
	_, shown := getNoticeDetails(t.Context(), c, "sent")
	_, paused := pauseMail(t.Context(), c, "", noticesNow)
	_, resent := resendNotice(t.Context(), c, "sent", noticesNow)
	for _, err := range []error{listed, shown, paused, resent} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "this is for administrators of the cluster") {
			t.Error(err)
		}
	}
}

func TestRenderNoticePreview(t *testing.T) {
	for _, language := range []v1alpha1.Language{v1alpha1.LanguageGerman, v1alpha1.LanguageEnglish} {
		list, err := listNoticeExamples(language)
		if err != nil || len(list) < 18 {
			t.Fatal(len(list), err)
		}
		for _, e := range list {
			for form, begins := range map[string]string{
				previewText: "Subject: " + e.Subject, previewHTML: "<!DOCTYPE html>", previewEML: "Mime-Version: 1.0\r\n",
			} {
				got, err := renderNoticePreview(strings.ToUpper(e.Name), language, form)
				if err != nil || !strings.HasPrefix(got, begins) {
					t.Errorf("%s as %s: %.60q, %v", e.Name, form, got, err)
				}
			}
			if _, err := renderNoticePreview(string(e.Kind), language, previewText); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := renderNoticePreview("Spoon", "en", previewText); err == nil || !strings.Contains(err.Error(), "sluice notices preview") {
		t.Error(err)
	}
}
