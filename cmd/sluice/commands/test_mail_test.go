// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/v1alpha1"
)

// testMailStep is a status that lifecycle writes after a while.
type testMailStep struct {
	after time.Duration
	write v1alpha1.NoticeStatus
}

func listWrittenNotices(t *testing.T, c client.Reader) []v1alpha1.Notice {
	t.Helper()
	var all v1alpha1.NoticeList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	return all.Items
}

func TestSendTestMail(t *testing.T) {
	retryAt := metav1.NewTime(noticesNow.Add(5 * time.Minute))
	claimed := metav1.NewTime(noticesNow)
	setUp := mailStateConfigMap(map[string]string{"since": pausedSince})
	another := exampleNotice(t, "workloadidle-notebook.en", func(n *v1alpha1.Notice) {
		n.Name, n.Status = "another", v1alpha1.NoticeStatus{
			Phase:     v1alpha1.NoticePending,
			ClaimedAt: &claimed,
			LastError: "dial tcp: connection refused",
		}
	})
	sending := testMailStep{
		2 * time.Second,
		v1alpha1.NoticeStatus{Phase: v1alpha1.NoticeSending, Attempts: 1, ClaimedBy: "lifecycle_1", ClaimedAt: &claimed},
	}
	tests := map[string]struct {
		objects  []client.Object
		steps    []testMailStep
		took     time.Duration // at most
		sent     bool
		progress []string // after the first
		want     []string
	}{
		"sent": {
			[]client.Object{setUp},
			[]testMailStep{
				sending,
				{3 * time.Second, v1alpha1.NoticeStatus{Phase: v1alpha1.NoticeSent, Attempts: 1, SentAt: &claimed, MessageID: "<1@gpu.example.org>"}},
			},
			4 * time.Second, true,
			[]string{"Claimed by lifecycle_1; attempt 1"},
			[]string{"Sent at 2026-11-22 12:00:00 UTC: the mail server accepted the mail for anna@example.org.", "Message-ID: <1@gpu.example.org>"},
		},
		"greylisted, then sent": {
			[]client.Object{setUp},
			[]testMailStep{
				{
					2 * time.Second,
					v1alpha1.NoticeStatus{
						Phase:     v1alpha1.NoticePending,
						Attempts:  1,
						RetryAt:   &retryAt,
						ClaimedAt: &claimed,
						LastError: "451 4.7.1 come back\x1b",
					},
				},
				{40 * time.Second, v1alpha1.NoticeStatus{Phase: v1alpha1.NoticeSent, Attempts: 2, SentAt: &claimed, MessageID: "<1@gpu.example.org>"}},
			},
			41 * time.Second, true,
			[]string{`Not accepted yet: 451 4.7.1 come back\x1b; next attempt at `},
			[]string{"Sent at"},
		},
		"greylisted": {
			[]client.Object{setUp},
			[]testMailStep{
				{
					2 * time.Second,
					v1alpha1.NoticeStatus{
						Phase:     v1alpha1.NoticePending,
						Attempts:  1,
						RetryAt:   &retryAt,
						ClaimedAt: &claimed,
						LastError: "451 4.7.1 come back",
					},
				},
			},
			61 * time.Second, false,
			[]string{"Not accepted yet: 451 4.7.1 come back; next attempt at "},
			[]string{"not sent within 1m0s: 451 4.7.1 come back; Sluice retries: sluice notices show test-"},
		},
		"refused": {
			[]client.Object{setUp},
			[]testMailStep{{time.Second, v1alpha1.NoticeStatus{Phase: v1alpha1.NoticeFailed, Attempts: 1, LastError: "550 5.1.1 no such user"}}},
			2 * time.Second, false, nil,
			[]string{"is Failed: sending failed and is not retried: 550 5.1.1 no such user; correct"},
		},
		"superseded": {
			[]client.Object{setUp},
			[]testMailStep{{time.Second, v1alpha1.NoticeStatus{Phase: v1alpha1.NoticeSuperseded, LastError: "too old"}}},
			2 * time.Second, false, nil,
			[]string{"is Superseded: the notice was superseded: too old"},
		},
		"paused by an administrator": {
			[]client.Object{mailStateConfigMap(map[string]string{"since": pausedSince, "paused": "true", "reason": "it moves"})},
			nil,
			time.Second, false, nil,
			[]string{"is Pending: Mail is paused: notices wait, and none is lost; Reason: it moves; To resume mail: sluice notices resume"},
		},
		"paused by lifecycle, not corrected": {
			[]client.Object{
				mailStateConfigMap(map[string]string{"since": pausedSince, "paused": "true", "reason": "535 wrong", "configuration": "x"}),
			},
			nil,
			11 * time.Second, false, nil,
			[]string{"Reason: 535 wrong; Mail resumes with a changed configuration"},
		},
		"paused by lifecycle, corrected meanwhile": {
			[]client.Object{
				mailStateConfigMap(map[string]string{"since": pausedSince, "paused": "true", "reason": "535 wrong", "configuration": "x"}),
			},
			[]testMailStep{{5 * time.Second, v1alpha1.NoticeStatus{Phase: v1alpha1.NoticeSent, SentAt: &claimed}}},
			6 * time.Second, true, nil,
			[]string{"Sent at"},
		},
		"it pauses mail itself": {
			[]client.Object{
				mailStateConfigMap(map[string]string{"since": pausedSince, "paused": "true", "reason": "535 wrong", "configuration": "x"}),
			},
			[]testMailStep{{time.Second, v1alpha1.NoticeStatus{Phase: v1alpha1.NoticePending, ClaimedAt: &claimed, LastError: "535 wrong"}}},
			2 * time.Second, false, nil,
			[]string{"Reason: 535 wrong"},
		},
		"no mail server": {
			nil,
			nil,
			61 * time.Second,
			false,
			nil,
			[]string{"no mail server is configured: lifecycle's `mail` section is missing; Sluice sends it when possible"},
		},
		"not claimed": {
			[]client.Object{setUp},
			nil,
			61 * time.Second,
			false,
			nil,
			[]string{"not sent within 1m0s: lifecycle has not claimed it. Lifecycle is not running"},
		},
		"the server is unreachable": {
			[]client.Object{setUp, another},
			nil, 61 * time.Second, false, nil,
			[]string{"1 other notices are waiting; the last error of the mail server is: dial tcp: connection refused"},
		},
		"the server does not answer": {
			[]client.Object{setUp},
			[]testMailStep{sending},
			61 * time.Second,
			false,
			[]string{"Claimed by"},
			[]string{"the mail server has not answered yet"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var objects []client.Object
				for _, o := range tc.objects {
					objects = append(objects, o.DeepCopyObject().(client.Object))
				}
				c := newFakeClient(t, interceptor.Funcs{}, objects...)
				var progress []string
				began := time.Now()
				test := testMail{
					address:  "anna@example.org",
					language: "de",
					now:      noticesNow,
					timeout:  time.Minute,
					progress: func(s string) { progress = append(progress, s) },
				}
				go func() {
					for _, s := range tc.steps {
						time.Sleep(time.Until(began.Add(s.after)))
						for _, n := range listWrittenNotices(t, c) {
							if n.Spec.Kind == v1alpha1.NoticeTest {
								n.Status = s.write
								if err := c.Update(t.Context(), &n); err != nil {
									t.Error(err)
								}
							}
						}
					}
				}()
				result, err := test.send(t.Context(), c)
				if tc.sent != (err == nil) || err != nil && !errors.Is(err, errTestMailNotSent) {
					t.Fatal(err)
				}
				if took := time.Since(began); took > tc.took {
					t.Errorf("it took %s", took)
				}
				if len(progress) != 1+len(tc.progress) || !strings.HasPrefix(progress[0], "Created notice test-") {
					t.Fatalf("progress: %q", progress)
				}
				for i, want := range tc.progress {
					if !strings.HasPrefix(progress[i+1], want) {
						t.Errorf("progress: %q, want %q", progress[i+1], want)
					}
				}
				if strings.HasSuffix(result.Problem, ";") || strings.Contains(result.Problem, "\n") {
					t.Errorf("the problem is not one sentence: %q", result.Problem)
				}
				for _, want := range tc.want {
					if text := result.text(time.UTC); !strings.Contains(text, want) {
						t.Errorf("%q is not in %q", want, text)
					}
				}
				synctest.Wait()
			})
		})
	}
}

// The Notice has no name but the recipient's address.
func TestTestMailNotice(t *testing.T) {
	c := newFakeClient(t, interceptor.Funcs{})
	ctx, cancel := context.WithCancel(t.Context())
	test := testMail{
		address:  "anna@example.org",
		language: "de",
		now:      noticesNow.Add(time.Millisecond),
		timeout:  time.Minute,
		progress: func(string) { cancel() },
	}
	result, err := test.send(ctx, c)
	if !errors.Is(err, errTestMailNotSent) || !strings.Contains(result.Problem, "no mail server is configured") {
		t.Fatal(result, err)
	}
	all := listWrittenNotices(t, c)
	if len(all) != 1 || !regexp.MustCompile(`^test-[a-z0-9]{10}$`).MatchString(all[0].Name) {
		t.Fatalf("%v", all)
	}
	want := v1alpha1.NoticeSpec{
		Recipient: v1alpha1.NoticeRecipient{Contact: v1alpha1.Contact{Name: "Test", Email: "anna@example.org"}, Language: "de", TimeZone: "UTC"},
		Kind:      v1alpha1.NoticeTest, DueAt: metav1.NewTime(noticesNow),
	}
	if diff := cmp.Diff(want, all[0].Spec); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// An invalid address is rejected before anything is written.
func TestValidateAddressRejectsHostileInput(t *testing.T) {
	c := newFakeClient(t, interceptor.Funcs{})
	for address, want := range map[string]string{
		"":                                     "it has no @",
		"anna":                                 "it has no @",
		"@":                                    "it is not a mail address",
		"a@":                                   "it is not a mail address",
		"@b":                                   "it is not a mail address",
		"a@example.org,b@example.org":          "it may be several addresses",
		"a@example.org;b@example.org":          "it may be several addresses",
		"a@example.org b@example.org":          "it may be several addresses",
		"anna(boss)@example.org":               "it has a comment",
		"Anna <anna@example.org>":              "it has brackets or quotes",
		`"anna b"@example.org`:                 "it has brackets or quotes",
		"anna@example.org> NOTIFY=NEVER":       "it has brackets or quotes",
		"anna @example.org":                    "it has a space",
		"anna@example.org\nBcc: b@c.d":         "control character",
		"anna@example.org\x00":                 "control character",
		"änna@example.org":                     "beyond ASCII",
		"anna@exаmple.org":                     "beyond ASCII", // a Cyrillic a
		"a@b@c":                                "it is not a mail address",
		".anna@example.org":                    "it is not a mail address",
		"an..na@example.org":                   "it is not a mail address",
		"anna@-example.org":                    "it is not a mail address",
		"anna@[127.0.0.1]":                     "it is not a mail address",
		strings.Repeat("a", 250) + "@b.de":     "it has 255 bytes",
		strings.Repeat("a", 65) + "@b.de":      "1 to 64 are allowed",
		"a@" + strings.Repeat("b", 64) + ".de": "is not a DNS name",
	} {
		test := testMail{address: address, language: "de", now: noticesNow, timeout: time.Minute, progress: func(string) {}}
		result, err := test.send(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), want) || result != nil {
			t.Errorf("%q: %v; want %q", address, err, want)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, "ADDRESS ") || !strings.Contains(text, "want one plain mail address") ||
			strings.ContainsAny(text, "\n\x00") ||
			len(text) > 400 {
			t.Errorf("%q: %q", address, text)
		}
	}
	if all := listWrittenNotices(t, c); len(all) != 0 {
		t.Errorf("written: %v", all)
	}
	for _, address := range []string{"anna.mueller@example.org", "o'neil+x@b.c", "root@localhost"} {
		if err := validateAddress(address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestSendTestMailForbidden(t *testing.T) {
	c := newFakeClient(t, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return forbiddenError()
		},
	})
	test := testMail{address: "anna@example.org", language: "de", now: noticesNow, timeout: time.Minute, progress: func(string) {}}
	if _, err := test.send(t.Context(), c); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "who may create notices") {
		t.Error(err)
	}
}
