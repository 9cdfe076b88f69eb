// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config is the configuration file of the webhook.
//
// Enters: YAML of kind WebhookConfig. Leaves: a defaulted and validated
// [Config]. It never holds a secret; certificates are files of their own.
package config
