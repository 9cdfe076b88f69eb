// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/textproto"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/emersion/go-smtp"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stage  Stage
		code   int
		status enhanced
		want   Kind
	}{
		{StageGreeting, 421, enhanced{}, Temporary},
		{StageGreeting, 554, enhanced{}, Configuration},
		{StageGreeting, 521, enhanced{}, Configuration},
		{StageHello, 550, enhanced{}, Configuration},
		{StageHello, 450, enhanced{}, Temporary},
		{StageStartTLS, 454, enhanced{}, Temporary},
		{StageStartTLS, 502, enhanced{}, Configuration},
		{StageAuth, 535, enhanced{5, 7, 8}, Configuration},
		{StageAuth, 534, enhanced{5, 7, 9}, Configuration},
		{StageAuth, 454, enhanced{4, 7, 0}, Temporary},
		{StageAuth, 432, enhanced{4, 7, 12}, Configuration},
		{StageAuth, 421, enhanced{}, Temporary},
		{StageMail, 530, enhanced{5, 7, 0}, Configuration},
		{StageMail, 550, enhanced{}, Configuration},
		{StageMail, 553, enhanced{5, 1, 7}, Configuration},
		{StageMail, 552, enhanced{}, Recipient},
		{StageMail, 550, enhanced{5, 3, 4}, Recipient},
		{StageMail, 550, enhanced{5, 6, 7}, Recipient},
		{StageMail, 451, enhanced{4, 3, 0}, Temporary},
		{StageRcpt, 550, enhanced{}, Recipient},
		{StageRcpt, 550, enhanced{5, 1, 1}, Recipient},
		{StageRcpt, 556, enhanced{5, 1, 10}, Recipient},
		{StageRcpt, 501, enhanced{5, 1, 3}, Recipient},
		{StageRcpt, 551, enhanced{}, Recipient},
		{StageRcpt, 552, enhanced{}, Temporary},
		{StageRcpt, 550, enhanced{5, 2, 2}, Temporary},
		{StageRcpt, 450, enhanced{4, 2, 0}, Temporary},
		{StageRcpt, 451, enhanced{4, 7, 1}, Temporary},
		{StageRcpt, 503, enhanced{}, Configuration},
		{StageRcpt, 555, enhanced{}, Configuration},
		{StageRcpt, 530, enhanced{}, Configuration},
		{StageRcpt, 554, enhanced{5, 7, 1}, Configuration},
		{StageRcpt, 550, enhanced{5, 7, 54}, Configuration},
		{StageRcpt, 550, enhanced{5, 7, 2}, Recipient},
		{StageRcpt, 550, enhanced{5, 7, 17}, Recipient},
		{StageRcpt, 550, enhanced{5, 7, 124}, Recipient},
		{StageRcpt, 550, enhanced{5, 7, 133}, Recipient},
		{StageData, 554, enhanced{5, 5, 1}, Recipient},
		{StageData, 503, enhanced{}, Configuration},
		{StageData, 451, enhanced{}, Temporary},
		{StageData, 250, enhanced{}, Temporary},
		{StageFinal, 554, enhanced{5, 7, 1}, Recipient},
		{StageFinal, 552, enhanced{5, 3, 4}, Recipient},
		{StageFinal, 550, enhanced{5, 7, 26}, Configuration},
		{StageFinal, 550, enhanced{5, 7, 20}, Configuration},
		{StageFinal, 530, enhanced{}, Configuration},
		{StageFinal, 550, enhanced{5, 2, 2}, Temporary},
		{StageFinal, 452, enhanced{4, 3, 1}, Temporary},
		{StageFinal, 354, enhanced{}, Unknown},
	} {
		if got := classify(c.stage, c.code, c.status); got != c.want {
			t.Errorf("%s %d %v: %s, want %s", c.stage, c.code, c.status, got, c.want)
		}
	}
}

// FuzzReplies makes failures of whatever a server may say.
func FuzzReplies(f *testing.F) {
	f.Add("RCPT", 550, "5.1.1 no such user", 5, 1, 1)
	f.Add("AUTH", 535, "5.7.8 bad password "+password, 5, 7, 8)
	f.Add("AUTH", 535, strings.ReplaceAll(password, " ", "\n"), 5, 7, 8)
	f.Add("end of message", 451, "4.7.1\n4.7.1 \x1b[2J", -1, -1, -1)
	f.Add("MAIL", 552, strings.Repeat("ü\xff", 600), 5, 999999999, 4)
	f.Fuzz(func(t *testing.T, at string, code int, text string, class, subject, detail int) {
		s := &Sender{server: "mail.example.org:587"}
		secrets := credentials{"sluice", password}.secrets()
		for _, err := range []error{
			&smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{class, subject, detail}, Message: text},
			&textproto.Error{Code: code, Msg: text},
			textproto.ProtocolError(text),
		} {
			got := s.failure(t.Context(), Stage(at), secrets, err)
			_, _, _, replied := reply(err)
			if !utf8.ValidString(got.Text) || len(got.Text) > maxText || strings.ContainsFunc(got.Text, unicode.IsControl) {
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
			case got.Kind == Unknown && (got.Stage != StageFinal || replied && (code/100 == 4 || code/100 == 5)):
				t.Errorf("unknown: %v", got)
			case replied && code/100 == 4 && got.Kind != Temporary && code != 432:
				t.Errorf("4yz: %v", got)
			case got.Kind == Recipient && (!replied || code/100 != 5):
				t.Errorf("permanent: %v", got)
			}
		}
	})
}
