// Package config reads ChoirOS's configuration: defaults, overridden by a TOML
// file, overridden by CHOIR_* variables, overridden by flags.
//
// The file is the one named by --config, else the first that exists of
// $XDG_CONFIG_HOME/choir/config.toml and /etc/choir/config.toml. A key that
// is not known is an error that names the nearest known one.
package config
