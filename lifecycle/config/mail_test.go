// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"sluice.dev/api/config"
)

const configHeader = "apiVersion: config.sluice.dev/v1alpha1\nkind: LifecycleConfig\n"

func TestMailDefaults(t *testing.T) {
	tests := map[string]struct {
		text string
		want *Mail
	}{
		"none": {"", nil},
		"minimal": {
			"mail: {server: 'mail.example.org:587', from: 'GPU cluster <gpu@cs.example.org>', credentialsSecret: {name: sluice-mail}}",
			&Mail{
				Server: "mail.example.org:587", TLS: MailStartTLS, From: "GPU cluster <gpu@cs.example.org>", Domain: "cs.example.org", Hello: "cs.example.org",
				Auth: MailPlain, CredentialsSecret: &SecretReference{Namespace: "sluice-system", Name: "sluice-mail"},
				Rate: MailRate{PerMinute: ptr.To(60), PerRecipientPerDay: ptr.To(100)},
			},
		},
		"local server": {
			"mail: {server: '127.0.0.1:1025', tls: None, from: gpu@example.org, hello: node.example.org, rate: {perMinute: 0}}",
			&Mail{
				Server: "127.0.0.1:1025", TLS: MailNoTLS, From: "gpu@example.org", Domain: "example.org", Hello: "node.example.org", Auth: MailNoAuth,
				Rate: MailRate{PerMinute: ptr.To(0), PerRecipientPerDay: ptr.To(100)},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var c Config
			if err := config.Parse([]byte(configHeader+tc.text), &c); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, c.Mail); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMailValidation(t *testing.T) {
	const rest = ", from: gpu@example.org"
	tests := map[string]struct{ text, want string }{
		"no port":                  {"server: mail.example.org" + rest, "mail.server"},
		"no sender":                {"server: 'm:25'", "mail.from"},
		"two senders":              {"server: 'm:25', from: 'a@b.c, d@e.f'", "mail.from"},
		"umlaut in the sender":     {"server: 'm:25', from: 'ä@example.org'", "mail.from"},
		"address without name":     {"server: 'm:25', userAddress: 'users@example.org'" + rest, "mail.userAddress"},
		"address of two lines":     {"server: 'm:25', userAddress: \"{user}@example.org\\nBcc: x@y.z\"" + rest, "mail.userAddress"},
		"replyTo with name":        {"server: 'm:25', replyTo: 'A <a@b.c>'" + rest, "mail.replyTo"},
		"unknown field":            {"server: 'm:25', password: secret" + rest, "password"},
		"unencrypted":              {"server: 'm:25', tls: None" + rest, "plaintextTo: m"},
		"plaintextTo another host": {"server: 'm:25', tls: None, plaintextTo: other" + rest, "plaintextTo: m"},
		"plaintextTo with TLS":     {"server: 'm:25', plaintextTo: m" + rest, "mail.plaintextTo"},
		"unencrypted password":     {"server: '[::1]:25', tls: None, auth: PLAIN, credentialsSecret: {name: s}" + rest, "never sent in the clear"},
		"no Secret":                {"server: 'm:25', auth: LOGIN" + rest, "mail.credentialsSecret"},
		"Secret, no password":      {"server: 'm:25', auth: None, credentialsSecret: {name: s}" + rest, "mail.auth"},
		"other TLS":                {"server: 'm:25', tls: Maybe" + rest, "mail.tls"},
		"other auth":               {"server: 'm:25', auth: CRAM" + rest, "mail.auth"},
		"DKIM without key":         {"server: 'm:25', dkim: {domain: example.org, selector: s}" + rest, "mail.dkim.keySecret.name"},
		"negative rate":            {"server: 'm:25', rate: {perMinute: -1}" + rest, "mail.rate.perMinute"},
		"line break":               {"server: 'm:25', hello: \"a\\nb\"" + rest, "mail.hello"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := config.Parse([]byte(configHeader+"mail: {"+tc.text+"}"), &Config{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v; want an error with %s", err, tc.want)
			}
		})
	}
}
