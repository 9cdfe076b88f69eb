// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/lifecycle/notification/smtp"
)

const (
	minTestMailTimeout = time.Second
	maxTestMailTimeout = time.Hour
)

func newNoticesTestCommand() *cobra.Command {
	var test testMail
	language := string(v1alpha1.LanguageEnglish)
	cmd := &cobra.Command{
		Use:   "test ADDRESS",
		Short: "Send a test mail and report the result",
		Long: `Send one test mail to one address, wait until the mail server accepts it, and report
each step. The command fails if the mail is not sent in time, with the reason and what
to do. A test mail precedes all waiting mail, within the rate limits.`,
		Example: `  # Send a test mail
  sluice notices test anna.mueller@example.org

  # Send a German one, and wait at most five minutes
  sluice notices test anna.mueller@example.org --language de --timeout 5m -o json`,
		Args: cobra.ExactArgs(1),
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addTextOutputFlag(cmd)
	addLanguageFlag(cmd, &language)
	cmd.Flags().DurationVar(&test.timeout, "timeout", time.Minute, "Time to wait for the result, 1s to 1h")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if test.timeout < minTestMailTimeout || test.timeout > maxTestMailTimeout {
			return fmt.Errorf("--timeout %s: want %s to %s", test.timeout, minTestMailTimeout, maxTestMailTimeout)
		}
		if err := validateAddress(args[0]); err != nil {
			return err
		}
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		test.address, test.language, test.now = args[0], v1alpha1.Language(language), c.clock.Now()
		test.progress = func(step string) { fmt.Fprintln(cmd.ErrOrStderr(), step) }
		result, err := test.send(cmd.Context(), c)
		if err != nil && !errors.Is(err, errTestMailNotSent) {
			return err
		}
		printErr := output.print(cmd.OutOrStdout(), result, func(output io.Writer) error {
			if err != nil {
				err = fmt.Errorf("%w: %s", err, strings.TrimSpace(result.text(time.Local)))
				return nil //nolint:nilerr // the command returns it, with its text
			}
			_, err := io.WriteString(output, result.text(time.Local))
			return err
		})
		return errors.Join(printErr, err)
	}
	return cmd
}

var emailPattern = regexp.MustCompile(v1alpha1.EmailPattern)

// Lengths of an address, in bytes.
const (
	minAddressLength, maxAddressLength = 3, 254
	maxAddressInError                  = 60
)

// validateAddress accepts one plain mail address. Its error names the address, its
// problem, and the allowed form.
func validateAddress(text string) error {
	problem := addressProblem(text)
	if problem == "" {
		return nil
	}
	shown := []rune(text)
	if len(shown) > maxAddressInError {
		shown = append(shown[:maxAddressInError-1], '…')
	}
	return fmt.Errorf("ADDRESS %q: %s; want one plain mail address such as anna.mueller@example.org: "+
		"ASCII, at most %d characters, without a name, brackets, comments or spaces", string(shown), problem, maxAddressLength)
}

// addressProblem returns the problem of an address, and an empty string for a valid
// one.
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
		return "it may be several addresses"
	case has("()"):
		return "it has a comment"
	case has("<>\""):
		return "it has brackets or quotes"
	case has(" "):
		return "it has a space"
	case !has("@"):
		return "it has no @"
	case len(text) < minAddressLength || !emailPattern.MatchString(text):
		return "it is not a mail address"
	}
	if err := smtp.ValidateAddress(text); err != nil {
		return err.Error()
	}
	return ""
}

// errTestMailNotSent is the error of a test mail whose result has a problem.
var errTestMailNotSent = errors.New("the test mail was not sent")

// testMail is a test mail to send.
type testMail struct {
	address  string
	language v1alpha1.Language
	// now is policy time.
	now time.Time
	// timeout limits the wait, in real time.
	timeout time.Duration
	// progress receives each new step as a line.
	progress func(string)
}

// testMailResult is the result of a test mail.
type testMailResult struct {
	noticeRow
	// Problem is the reason why the mail was not sent, and what to do.
	Problem string `json:"problem,omitempty"`
	// Mail is the state of mail; nil if the user may not read it.
	Mail *mailState `json:"mail,omitempty"`
}

// send creates the Notice and waits until the mail is sent or cannot be sent. It
// returns [errTestMailNotSent] with a result that has the problem. It rejects an
// invalid address before it writes anything.
func (t testMail) send(ctx context.Context, c client.Client) (*testMailResult, error) {
	if err := validateAddress(t.address); err != nil {
		return nil, err
	}
	n := &v1alpha1.Notice{
		ObjectMeta: metav1.ObjectMeta{Name: "test-" + rand.String(10)},
		Spec: v1alpha1.NoticeSpec{
			Recipient: v1alpha1.NoticeRecipient{
				Contact:  v1alpha1.Contact{Name: "Test", Email: v1alpha1.EmailAddress(t.address)},
				Language: t.language, TimeZone: "UTC",
			},
			Kind: v1alpha1.NoticeTest, DueAt: metav1.NewTime(t.now.Truncate(time.Second)),
		},
	}
	if err := c.Create(ctx, n, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
		return nil, fmt.Errorf("create notice: %w", explainForbidden(err, noticeAccessHint+"create notices"))
	}
	t.progress(fmt.Sprintf("Created notice %s; waiting for lifecycle, at most %s", n.Name, t.timeout))
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	w := testMailWatch{test: t, client: c, notice: n}
	result, err := w.waitUntilSent(ctx)
	if err == nil && result.Problem != "" {
		err = errTestMailNotSent
	}
	return result, err
}

// text returns the result as text.
func (r *testMailResult) text(zone *time.Location) string {
	if r.Problem != "" {
		return fmt.Sprintf("Notice %s is %s: %s\n", r.Name, r.Phase, r.Problem)
	}
	at := ""
	if r.SentAt != nil {
		at = " at " + printer.FormatSecond(*r.SentAt, zone)
	}
	var text printer.FieldList
	fmt.Fprintf(&text, "Sent%s: the mail server accepted the mail for %s.\n", at, r.Recipient)
	text.Add("Message-ID", r.MessageID)
	text.WriteString("Check the mailbox and its spam folder.\n")
	return text.String()
}
