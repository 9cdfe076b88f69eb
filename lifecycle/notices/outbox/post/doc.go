// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package post joins the outbox to what writes mails and what brings them to the mail
// server, as the configuration of mail says.
//
// Enters: that configuration, and the Secrets and the ConfigMap of texts that it
// names, which are read by name each time they are needed: what changes counts at
// once. Leaves: an outbox.Sender.
//
// It never keeps a password, and none is in its errors.
package post
