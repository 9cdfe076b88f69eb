// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config is the configuration file of the GPU agent.
//
// Enters: YAML of kind GPUAgentConfig, and the name of the node from the environment
// where the file leaves it open: one file serves all nodes. Leaves: a defaulted and
// validated [Config]. It never holds a secret.
package config
