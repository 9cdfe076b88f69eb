// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config is the configuration file of the lifecycle controller.
//
// Enters: YAML of kind LifecycleConfig. Leaves: a defaulted and validated
// [Config]. It never holds a secret.
package config
