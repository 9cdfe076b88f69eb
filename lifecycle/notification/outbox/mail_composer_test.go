// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/config"
	noticemail "sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/notification/smtp"
)

func newClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func newMailConfig(t *testing.T, change func(*config.Mail)) *config.Mail {
	t.Helper()
	c := &config.Config{Mail: &config.Mail{
		Server: "mail.example.org:587", From: "GPU cluster <gpu@example.org>", CredentialsSecret: &config.SecretReference{Name: "sluice-mail"},
	}}
	change(c.Mail)
	c.Default()
	return c.Mail
}

func newSecret(user, password string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: "sluice-mail"},
		Data:       map[string][]byte{"username": []byte(user), "password": []byte(password)},
	}
}

// A changed Secret changes the fingerprint and is used at once; neither fingerprint nor errors contain
// its values.
func TestSecretRotation(t *testing.T) {
	c := newClient(t)
	s, err := NewSender(newMailConfig(t, func(*config.Mail) {}), Dependencies{Client: c, Live: c, Clock: policytime.System()})
	if err != nil {
		t.Fatal(err)
	}
	transport := s.Transport.(*smtpTransport)
	var fingerprints []string
	fingerprint := func() {
		t.Helper()
		now, err := s.Fingerprint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fingerprints = append(fingerprints, now)
	}
	credentials := func(want string) {
		t.Helper()
		user, password, err := transport.credentials(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := user + ":" + password; got != want {
			t.Errorf("%s; want %s", got, want)
		}
		fingerprint()
	}
	fingerprint()
	var failure *Failure
	if _, _, err := transport.credentials(t.Context()); !errors.As(err, &failure) || failure.Kind != ConfigurationFailure {
		t.Errorf("without a Secret: %v", err)
	}
	kept := newSecret("gpu", "hunter2")
	if err := c.Create(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	credentials("gpu:hunter2")
	kept.Data["password"] = []byte("hunter3")
	if err := c.Update(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	credentials("gpu:hunter3")
	kept.Data["password"] = nil
	if err := c.Update(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	_, _, err = transport.credentials(t.Context())
	if !errors.As(err, &failure) || failure.Kind != ConfigurationFailure || strings.Contains(err.Error(), "hunter") ||
		!strings.Contains(err.Error(), "password") {
		t.Errorf("without a password: %v", err)
	}
	if len(fingerprints) != 3 || fingerprints[0] == fingerprints[1] || fingerprints[1] == fingerprints[2] {
		t.Errorf("fingerprints: %v", fingerprints)
	}
}

// The composer renders a digest with all its Notices.
func TestComposeDigest(t *testing.T) {
	c := newClient(t)
	s, err := NewSender(newMailConfig(t, func(*config.Mail) {}), Dependencies{Client: c, Live: c, Clock: policytime.System()})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range noticemail.Examples() {
		notice := l.Notice.DeepCopy()
		if notice.Spec.Kind == v1alpha1.NoticeDigest {
			notice.Spec.Inputs = map[string]string{InputCarriedNotices: "a,b"}
		}
		mail, err := s.Composer.Compose(t.Context(), ComposeRequest{Notice: notice, Carried: l.Carried})
		if err != nil {
			t.Errorf("%s: %v", notice.Name, err)
			continue
		}
		if mail.MessageID != noticemail.MessageID(notice, "example.org") || !bytes.Contains(mail.Bytes, []byte("Message-ID: "+mail.MessageID)) {
			t.Errorf("%s: Message-ID %s", notice.Name, mail.MessageID)
		}
	}
}

// Invalid templates pause mail; valid ones resume it.
func TestInvalidTemplatesPauseMail(t *testing.T) {
	texts := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: "sluice-mail-templates"}, Data: map[string]string{"Nothing.en.txt": "x"},
	}
	c := newClient(t, texts)
	s, err := NewSender(
		newMailConfig(t, func(m *config.Mail) { m.Templates = texts.Name }), Dependencies{Client: c, Live: c, Clock: policytime.System()},
	)
	if err != nil {
		t.Fatal(err)
	}
	request := ComposeRequest{Notice: noticemail.Examples()[0].Notice}
	var failure *Failure
	if _, err := s.Composer.Compose(t.Context(), request); !errors.As(err, &failure) || failure.Kind != ConfigurationFailure {
		t.Errorf("%v", err)
	}
	texts.Data = nil
	if err := c.Update(t.Context(), texts); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Composer.Compose(t.Context(), request); err != nil {
		t.Error(err)
	}
}

// A template that fails on real inputs falls back to the built-in one.
func TestFailingTemplateFallsBackToBuiltin(t *testing.T) {
	texts := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: "sluice-mail-templates"},
		Data:       map[string]string{"ProjectDeleted.en.txt": "deleted {{.At.deletedAt.Local}}"},
	}
	c := newClient(t, texts)
	s, err := NewSender(
		newMailConfig(t, func(m *config.Mail) { m.Templates = texts.Name }), Dependencies{Client: c, Live: c, Clock: policytime.System()},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range noticemail.Examples() {
		if l.Notice.Name != "projectdeleted-deleted.en" {
			continue
		}
		for deletedAt, want := range map[string]string{l.Notice.Spec.Inputs[noticemail.InputDeletedAt]: "\r\ndeleted Sunday", "": "Hello Anna"} {
			l.Notice.Spec.Inputs[noticemail.InputDeletedAt] = deletedAt
			mail, err := s.Composer.Compose(t.Context(), ComposeRequest{Notice: l.Notice})
			if err != nil || !bytes.Contains(mail.Bytes, []byte(want)) {
				t.Errorf("%q: %v; want %q in\n%s", deletedAt, err, want, mail.Bytes)
			}
		}
	}
}

// Each appointment of a digest has the SEQUENCE of its Notice.
func TestComposeDigestSequences(t *testing.T) {
	c := newClient(t)
	s, err := NewSender(newMailConfig(t, func(*config.Mail) {}), Dependencies{Client: c, Live: c, Clock: policytime.System()})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range noticemail.Examples() {
		if l.Notice.Name != "digest-two.en" {
			continue
		}
		sequences := map[string]int{l.Carried[0].Name: 11, l.Carried[1].Name: 4}
		mail, err := s.Composer.Compose(t.Context(), ComposeRequest{Notice: l.Notice, Carried: l.Carried, Sequences: sequences})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"SEQUENCE:11\r\n", "SEQUENCE:4\r\n"} {
			if !bytes.Contains(mail.Bytes, []byte(want)) {
				t.Errorf("no %q in\n%s", want, mail.Bytes)
			}
		}
	}
}

func TestSMTPFailureKind(t *testing.T) {
	tests := map[string]struct {
		failure smtp.Failure
		want    FailureKind
	}{
		"no connection":      {smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageDial}, ServerFailure},
		"closed":             {smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageGreeting, Code: 421}, ServerFailure},
		"closes at EHLO":     {smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageHello, Code: 421}, ServerFailure},
		"closes at STARTTLS": {smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageStartTLS, Code: 421}, ServerFailure},
		"closes at AUTH":     {smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageAuth, Code: 421}, ServerFailure},
		"closes at MAIL": {
			smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageMail, Code: 421, Enhanced: "4.7.0"}, ServerFailure,
		},
		"closes at RCPT": {
			smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageRcpt, Code: 421, Enhanced: "4.7.0"}, ServerFailure,
		},
		"closes at DATA":     {smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageData, Code: 421}, ServerFailure},
		"closes in the mail": {smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageBody, Code: 421}, ServerFailure},
		"closes at the end": {
			smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageFinal, Code: 421, Enhanced: "4.2.1"}, ServerFailure,
		},
		"busy at the end": {smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageFinal, Code: 451}, TemporaryFailure},
		"full":            {smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageMail, Code: 452}, ServerFailure},
		"full, reported late": {
			smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageRcpt, Code: 452, Enhanced: "4.3.1"}, ServerFailure,
		},
		"greylisted": {
			smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageRcpt, Code: 451, Enhanced: "4.7.1"}, TemporaryFailure,
		},
		"closed in the mail": {smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageBody}, TemporaryFailure},
		"no such user":       {smtp.Failure{Kind: smtp.RecipientFailure, Stage: smtp.StageRcpt, Code: 550}, RecipientFailure},
		"relaying denied":    {smtp.Failure{Kind: smtp.DeniedFailure, Stage: smtp.StageRcpt, Code: 554}, DeniedFailure},
		"wrong password":     {smtp.Failure{Kind: smtp.ConfigurationFailure, Stage: smtp.StageAuth, Code: 535}, ConfigurationFailure},
		"no final reply":     {smtp.Failure{Kind: smtp.UnknownOutcome, Stage: smtp.StageFinal}, UnknownOutcome},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, smtpFailureKind(&tc.failure)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
