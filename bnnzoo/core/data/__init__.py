"""Data as their user passes them: conversion, rows, labels, codes of groups, gaps."""

__all__: list[str] = []
