// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/lifecycle/notification/smtp"
)

// Bounds of how long a test mail is waited for.
const (
	minTestMailTimeout = time.Second
	maxTestMailTimeout = time.Hour
)

func noticesTestCommand() *cobra.Command {
	var options ClusterOptions
	var language, output string
	test := TestMail{}
	cmd := &cobra.Command{
		Use:   "test ADDRESS",
		Short: "Send a test mail, and say what became of it",
		Long: `test asks for one mail to one address, waits until the mail server has taken it,
and says each step. It fails where it is not sent in time, with why and what to do.
It goes before all mail that waits, within the rates. The mail says that it is a
test, where it comes from and when it was asked for, and nothing else.`,
		Example: `  sluice notices test anna.mueller@example.org
  sluice notices test anna.mueller@example.org --language de --timeout 5m -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if language != string(v1alpha1.LanguageGerman) && language != string(v1alpha1.LanguageEnglish) {
				return fmt.Errorf("--language %q: want de or en", language)
			}
			if test.Timeout < minTestMailTimeout || test.Timeout > maxTestMailTimeout {
				return fmt.Errorf("--timeout %s: want %s to %s", test.Timeout, minTestMailTimeout, maxTestMailTimeout)
			}
			if err := ValidateAddress(args[0]); err != nil {
				return err
			}
			c, err := connectCluster(cmd, options)
			if err != nil {
				return err
			}
			test.Address, test.Language, test.Now = args[0], v1alpha1.Language(language), c.Clock.Now()
			test.Progress = func(step string) { fmt.Fprintln(cmd.ErrOrStderr(), step) }
			tested, err := test.Send(cmd.Context(), c)
			if err != nil && !errors.Is(err, ErrTestMailNotSent) {
				return err
			}
			if output == "json" {
				if failed := printer.WriteJSON(cmd.OutOrStdout(), tested); failed != nil {
					return failed
				}
				return err
			}
			if err != nil {
				return fmt.Errorf("%w: %s", err, strings.TrimSpace(tested.Text(time.Local)))
			}
			fmt.Fprint(cmd.OutOrStdout(), tested.Text(time.Local))
			return nil
		},
	}
	addClusterFlags(cmd, &options)
	cmd.Flags().StringVar(&language, "language", string(v1alpha1.LanguageEnglish), "the mail's `language`: de, en")
	cmd.Flags().DurationVar(&test.Timeout, "timeout", time.Minute, "how `long` to wait, 1s to 1h")
	addOutputFlag(cmd, &output, "text", "json")
	return cmd
}

var emailPattern = regexp.MustCompile(v1alpha1.EmailPattern)

// Lengths of an address, in bytes.
const (
	minAddressLength, maxAddressLength = 3, 254
	maxAddressInError                  = 60
)

// ValidateAddress refuses what is not one plain address. The error names what was given,
// what is wrong with it, and what is allowed.
func ValidateAddress(text string) error {
	wrong := addressProblem(text)
	if wrong == "" {
		return nil
	}
	shown := []rune(text)
	if len(shown) > maxAddressInError {
		shown = append(shown[:maxAddressInError-1], '…')
	}
	return fmt.Errorf("ADDRESS %q: %s; want one plain mail address such as anna.mueller@example.org: ASCII, at most %d characters, without a name, brackets, comments or spaces",
		string(shown), wrong, maxAddressLength)
}

// addressProblem says what is wrong with an address; empty for nothing.
func addressProblem(text string) string {
	has := func(characters string) bool { return strings.ContainsAny(text, characters) }
	switch {
	case len(text) > maxAddressLength:
		return fmt.Sprintf("it has %d bytes", len(text))
	case strings.ContainsFunc(text, unicode.IsControl):
		return "it has a line break or another control character"
	case strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }):
		return "it has a character beyond ASCII"
	case has(",;") || strings.Count(text, "@") > 1 && has(" "):
		return "it may be several"
	case has("()"):
		return "it has a comment"
	case has("<>\""):
		return "it has brackets or quotes"
	case has(" "):
		return "it has a space"
	case !has("@"):
		return "it has no @"
	case len(text) < minAddressLength || !emailPattern.MatchString(text):
		return "it is none"
	}
	// What no mail server takes is not asked of one.
	if err := smtp.ValidateAddress(text); err != nil {
		return err.Error()
	}
	return ""
}

// testMailPollInterval is how often it is looked how far a test has come, in machine time.
const testMailPollInterval = 500 * time.Millisecond

// ErrTestMailNotSent is that a test mail was not sent, for the reason in the [Tested].
var ErrTestMailNotSent = errors.New("the test mail was not sent")

// TestMail is a mail by which an administrator tries whether mail arrives.
type TestMail struct {
	// Address is who gets it, and Language in which language.
	Address  string
	Language v1alpha1.Language
	// Now is when it is asked for, in policy time.
	Now time.Time
	// Timeout is how long it is waited for, in machine time.
	Timeout time.Duration
	// Progress is told each step that is new, in a line.
	Progress func(string)
}

// TestMailResult is what became of a test mail.
type TestMailResult struct {
	NoticeRow
	// Problem is why it is not sent, and what to do; empty where it is.
	Problem string `json:"problem,omitempty"`
	// Mail is whether mail is sent at all; left out where that cannot be read.
	Mail *MailState `json:"mail,omitempty"`
}

// Send makes the Notice and waits until it is sent, or cannot be. The error is
// [ErrNotSent] where the Notice is there; a Tested then says why. An address that is
// none is refused before anything is written.
func (t TestMail) Send(ctx context.Context, c client.Client) (*TestMailResult, error) {
	if err := ValidateAddress(t.Address); err != nil {
		return nil, err
	}
	n := &v1alpha1.Notice{
		ObjectMeta: metav1.ObjectMeta{Name: "test-" + rand.String(10)},
		Spec: v1alpha1.NoticeSpec{
			Recipient: v1alpha1.NoticeRecipient{
				Contact:  v1alpha1.Contact{Name: "Test", Email: v1alpha1.EmailAddress(t.Address)},
				Language: t.Language, TimeZone: "UTC",
			},
			Kind: v1alpha1.NoticeTest, DueAt: metav1.NewTime(t.Now.Truncate(time.Second)),
		},
	}
	if err := c.Create(ctx, n, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
		return nil, fmt.Errorf("asking for a test mail: %w%s", err, noticeAccessHint(err, "create notices"))
	}
	t.Progress(fmt.Sprintf("notice %s is recorded; waiting for lifecycle, at most %s", n.Name, t.Timeout))
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	w := testMailWatch{test: t, client: c, notice: n}
	tested, err := w.waitUntilSent(ctx)
	if err == nil && tested.Problem != "" {
		err = ErrTestMailNotSent
	}
	return tested, err
}

// testMailWatch is a test mail that is waited for.
type testMailWatch struct {
	test   TestMail
	client client.Client
	notice *v1alpha1.Notice
	// lastStep is the step that was told last, and looks how often it was looked.
	lastStep string
	polls    int
}

// waitUntilSent looks until there is nothing to wait for.
func (w *testMailWatch) waitUntilSent(ctx context.Context) (*TestMailResult, error) {
	tick := time.NewTicker(testMailPollInterval)
	defer tick.Stop()
	for {
		w.polls++
		n := &v1alpha1.Notice{}
		err := w.client.Get(ctx, client.ObjectKeyFromObject(w.notice), n)
		switch {
		case apierrors.IsNotFound(err):
			return w.result("somebody took the notice away while it waited; ask again"), nil
		case err != nil && ctx.Err() == nil:
			return nil, fmt.Errorf("reading notice %s: %w%s", w.notice.Name, err, noticeAccessHint(err, "get and list notices"))
		case err == nil:
			w.notice = n
			if problem, over := w.evaluate(ctx); over {
				return w.result(problem), nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return w.timeoutResult(context.WithoutCancel(ctx), ctx.Err()), nil
		}
	}
}

func (w *testMailWatch) reportProgress(step string) {
	if step != w.lastStep {
		w.lastStep = step
		w.test.Progress(step)
	}
}

// result is how it ended.
func (w *testMailWatch) result(problem string) *TestMailResult {
	result := &TestMailResult{NoticeRow: NewNoticeRow(w.notice), Problem: problem}
	if state, err := GetMailState(context.Background(), w.client); err == nil {
		result.Mail = &state
	}
	return result
}
