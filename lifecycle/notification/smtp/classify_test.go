// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"net/textproto"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/emersion/go-smtp"
)

func TestClassifyReply(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stage  Stage
		code   int
		status enhancedCode
		want   FailureKind
	}{
		{StageGreeting, 421, enhancedCode{}, TemporaryFailure},
		{StageGreeting, 554, enhancedCode{}, ConfigurationFailure},
		{StageGreeting, 521, enhancedCode{}, ConfigurationFailure},
		{StageHello, 550, enhancedCode{}, ConfigurationFailure},
		{StageHello, 450, enhancedCode{}, TemporaryFailure},
		{StageStartTLS, 454, enhancedCode{}, TemporaryFailure},
		{StageStartTLS, 502, enhancedCode{}, ConfigurationFailure},
		{StageAuth, 535, enhancedCode{5, 7, 8}, ConfigurationFailure},
		{StageAuth, 534, enhancedCode{5, 7, 9}, ConfigurationFailure},
		{StageAuth, 454, enhancedCode{4, 7, 0}, TemporaryFailure},
		{StageAuth, 432, enhancedCode{4, 7, 12}, ConfigurationFailure},
		{StageAuth, 421, enhancedCode{}, TemporaryFailure},
		{StageMail, 530, enhancedCode{5, 7, 0}, ConfigurationFailure},
		{StageMail, 550, enhancedCode{}, ConfigurationFailure},
		{StageMail, 553, enhancedCode{5, 1, 7}, ConfigurationFailure},
		{StageMail, 552, enhancedCode{}, RecipientFailure},
		{StageMail, 550, enhancedCode{5, 3, 4}, RecipientFailure},
		{StageMail, 550, enhancedCode{5, 6, 7}, RecipientFailure},
		{StageMail, 451, enhancedCode{4, 3, 0}, TemporaryFailure},
		{StageRcpt, 550, enhancedCode{}, RecipientFailure},
		{StageRcpt, 550, enhancedCode{5, 1, 1}, RecipientFailure},
		{StageRcpt, 556, enhancedCode{5, 1, 10}, RecipientFailure},
		{StageRcpt, 501, enhancedCode{5, 1, 3}, RecipientFailure},
		{StageRcpt, 551, enhancedCode{}, RecipientFailure},
		{StageRcpt, 552, enhancedCode{}, TemporaryFailure},
		{StageRcpt, 550, enhancedCode{5, 2, 2}, TemporaryFailure},
		{StageRcpt, 450, enhancedCode{4, 2, 0}, TemporaryFailure},
		{StageRcpt, 451, enhancedCode{4, 7, 1}, TemporaryFailure},
		{StageRcpt, 503, enhancedCode{}, DeniedFailure},
		{StageRcpt, 555, enhancedCode{}, DeniedFailure},
		{StageRcpt, 530, enhancedCode{}, DeniedFailure},
		{StageRcpt, 554, enhancedCode{5, 7, 1}, DeniedFailure},
		{StageRcpt, 550, enhancedCode{5, 7, 54}, DeniedFailure},
		{StageRcpt, 550, enhancedCode{5, 7, 2}, RecipientFailure},
		{StageRcpt, 550, enhancedCode{5, 7, 17}, RecipientFailure},
		{StageRcpt, 550, enhancedCode{5, 7, 124}, RecipientFailure},
		{StageRcpt, 550, enhancedCode{5, 7, 133}, RecipientFailure},
		{StageData, 554, enhancedCode{5, 5, 1}, RecipientFailure},
		{StageData, 503, enhancedCode{}, DeniedFailure},
		{StageData, 451, enhancedCode{}, TemporaryFailure},
		{StageData, 250, enhancedCode{}, TemporaryFailure},
		{StageFinal, 554, enhancedCode{5, 7, 1}, RecipientFailure},
		{StageFinal, 552, enhancedCode{5, 3, 4}, RecipientFailure},
		{StageFinal, 550, enhancedCode{5, 7, 26}, DeniedFailure},
		{StageFinal, 550, enhancedCode{5, 7, 20}, DeniedFailure},
		{StageFinal, 530, enhancedCode{}, DeniedFailure},
		{StageFinal, 550, enhancedCode{5, 2, 2}, TemporaryFailure},
		{StageFinal, 452, enhancedCode{4, 3, 1}, TemporaryFailure},
		{StageFinal, 354, enhancedCode{}, UnknownOutcome},
	} {
		if got := classifyReply(c.stage, c.code, c.status); got != c.want {
			t.Errorf("%s %d %v: %s, want %s", c.stage, c.code, c.status, got, c.want)
		}
	}
}

// FuzzReplies creates failures from arbitrary replies.
func FuzzReplies(f *testing.F) {
	f.Add("RCPT", 550, "5.1.1 no such user", 5, 1, 1)
	f.Add("AUTH", 535, "5.7.8 bad password "+testPassword, 5, 7, 8)
	f.Add("AUTH", 535, strings.ReplaceAll(testPassword, " ", "\n"), 5, 7, 8)
	f.Add("end of message", 451, "4.7.1\n4.7.1 \x1b[2J", -1, -1, -1)
	f.Add("MAIL", 552, strings.Repeat("ü\xff", 600), 5, 999999999, 4)
	f.Fuzz(func(t *testing.T, at string, code int, text string, class, subject, detail int) {
		s := &Sender{server: "mail.example.org:587"}
		secrets := credentials{"sluice", testPassword}.encodedSecrets()
		for _, err := range []error{
			&smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{class, subject, detail}, Message: text},
			&textproto.Error{Code: code, Msg: text},
			textproto.ProtocolError(text),
		} {
			got := s.newFailure(t.Context(), Stage(at), secrets, err)
			_, _, _, replied := serverReply(err)
			if !utf8.ValidString(got.Text) || len(got.Text) > maxFailureText || strings.ContainsFunc(got.Text, unicode.IsControl) {
				t.Errorf("text %q", got.Text)
			}
			for _, secret := range secrets {
				if strings.Contains(got.Error(), secret) {
					t.Errorf("%q is in %q", secret, got.Error())
				}
			}
			if got.Unwrap() != nil {
				t.Errorf("the server's words are in the chain: %v", got.Unwrap())
			}
			switch {
			case got.Kind == UnknownOutcome && (got.Stage != StageFinal || replied && (code/100 == 4 || code/100 == 5)):
				t.Errorf("unknown: %v", got)
			case replied && code/100 == 4 && got.Kind != TemporaryFailure && code != 432:
				t.Errorf("4yz: %v", got)
			case got.Kind == RecipientFailure && (!replied || code/100 != 5):
				t.Errorf("permanent: %v", got)
			}
		}
	})
}
