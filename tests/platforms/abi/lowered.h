#pragma once

#include <type_traits>

// What a function type means to a caller who knows no header: an enumeration is an int, a pointer
// to any structure is a void*. Two types that are lowered to the same are called in the same way.

namespace abi_test {

template <typename T>
struct Lower {
  using Type = T;
};

template <typename T>
  requires std::is_enum_v<T>
struct Lower<T> {
  static_assert(sizeof(T) == sizeof(int));
  using Type = int;
};

template <typename T>
struct Lower<T*> {
  using Type = std::conditional_t<std::is_class_v<T>, void, typename Lower<T>::Type>*;
};

template <typename R, typename... A>
struct Lower<R(A...)> {
  using Type = typename Lower<R>::Type(typename Lower<A>::Type...);
};

template <typename T>
using Lowered = typename Lower<T>::Type;

// Where C++ overloads a C function, names the C function by its type.
template <typename F>
constexpr F* overload(F* function) {
  return function;
}

}  // namespace abi_test

#define SAME_FUNCTION(ours, theirs)                                                           \
  static_assert(std::is_same_v<abi_test::Lowered<ours>,                                       \
                               abi_test::Lowered<std::remove_reference_t<decltype(theirs)>>>, \
                #ours " is not " #theirs)

#define SAME_VALUE(ours, theirs)                                                \
  static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), \
                #ours " is not " #theirs)
